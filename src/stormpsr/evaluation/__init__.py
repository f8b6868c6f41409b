"""How well predictions agree with labels: scores per recording, summaries over many, plots."""
