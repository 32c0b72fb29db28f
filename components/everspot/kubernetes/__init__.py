"""Components of a training cluster inside an existing Kubernetes cluster."""
