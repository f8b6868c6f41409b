"""The annotator: states, steps and boxes of recordings, made by a person in a browser, with a model's proposals."""
