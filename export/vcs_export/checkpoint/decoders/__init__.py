"""The families of decoders, one module each: from a `config.json` to the settings of the graph."""
