"""Labels, boxes, frames and detections: what is on disk, read and checked once."""
