"""Networks without torch: exported once as ONNX graphs, then run by ONNX Runtime or OpenVINO. See docs/export.md."""
