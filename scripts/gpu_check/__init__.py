"""What scripts/gpu_check.sh does. Of the standard library alone: what it checks runs in processes of its own."""
