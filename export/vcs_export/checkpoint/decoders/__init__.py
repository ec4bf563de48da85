"""The families of decoders, one module each: from a `config.json` to what the graph must do."""
