"""Jobs over JSONL files of videos: scoring, and the steps in which a model writes."""
