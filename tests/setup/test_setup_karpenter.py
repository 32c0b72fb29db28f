"""The copy of Karpenter from which the local Kubernetes is built opens its ports on this machine alone."""

SOURCE = """
	BindAddress: fmt.Sprintf(":%d", options.FromContext(ctx).MetricsPort),
	HealthProbeBindAddress: fmt.Sprintf(":%d", options.FromContext(ctx).HealthProbePort),
"""


def test_both_ports_are_of_the_loopback_address(run_setup):
    closed = run_setup(f"import karpenter; print(karpenter.close_ports({SOURCE!r}))")
    assert closed.count('"127.0.0.1:%d"') == 2
    assert '":%d"' not in closed


def test_a_source_that_opens_its_ports_in_another_way_is_not_built(run_setup):
    other = SOURCE.replace("HealthProbePort", "ProbePort")
    assert "does not open HealthProbePort as expected" in run_setup(
        f"import karpenter; karpenter.close_ports({other!r})"
    )
