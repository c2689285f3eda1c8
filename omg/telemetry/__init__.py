"""Numbers out of a run: files, TensorBoard, trackers, terminal."""
