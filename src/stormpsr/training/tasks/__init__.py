"""What each stage trains, as Lightning modules: locator, encoder, temporal model, both together, detector."""
