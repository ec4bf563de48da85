"""Jobs: reading pairs from files, writing scores to files, resuming, and statistics."""
