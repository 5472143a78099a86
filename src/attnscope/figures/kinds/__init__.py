"""The built-in kinds of figure, one package each: options, statistics, chart, prose."""
