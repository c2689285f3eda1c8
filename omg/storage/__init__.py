"""What a run leaves on disk, written so that a crash loses nothing."""
