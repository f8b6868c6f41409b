"""The assembly state detection stream: frames with boxes in, a trained detector and its detections out."""
