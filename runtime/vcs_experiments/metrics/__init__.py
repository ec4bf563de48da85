"""The metrics of the experiments: VCS and its components, lexical metrics, BERTScore."""
