"""The curves of jobs as TensorBoard's event files."""
