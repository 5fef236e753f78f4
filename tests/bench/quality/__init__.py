"""What lossy checkpoints cost a training run: trainers, live runs with kills, and their report."""
