"""What the end-to-end tests, the benches and the demo share: models, file makers, the mdl wrapper, fault injection."""
