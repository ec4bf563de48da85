"""Jobs: reading pairs from files, writing scores to files, continuing after a stop, and statistics."""
