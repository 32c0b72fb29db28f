"""Comparison of number formats: intervals, verdicts, the number of seeds, and smaller types that can hold an arm."""

import math

import numpy as np
import pytest
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.experiments.arm_results import ArmVerdict, Interval, compare_arms, interval, judge, seeds_needed
from everspot_core.experiments.precision_comparison import ComparisonSpec, Tolerance
from everspot_core.experiments.sweep import Direction, infer_direction
from everspot_core.jobs.job_parts import Precision, Resources
from everspot_core.jobs.smaller_types import Footprint, SmallerType, smaller_types
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

FP32, BF16, FP16 = Precision.FP32, Precision.BF16, Precision.FP16
SPEC = ComparisonSpec(
    name="ab",
    precisions=[FP32, BF16, FP16],
    seeds=3,
    seed_field="parameters.seed",
    metric="test_accuracy",
    direction=Direction.MAXIMIZE,
    tolerance=Tolerance(amount=0.01),
)
VALUES = st.floats(-100, 100).map(lambda x: round(x, 6))


def test_the_interval_by_hand() -> None:
    """Mean 2, deviation 1 of three: Student's t of two degrees of freedom is 4.3027."""
    result = interval([1.0, 2.0, 3.0])
    assert (result.count, result.mean) == (3, 2.0)
    assert (result.low, result.high) == pytest.approx((2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)), abs=1e-3)


@pytest.mark.parametrize(
    ("values", "bounds"),
    [([0.5], (None, None)), ([0.1, 0.1], (None, None)), ([0.1, 0.1, 0.1], (0.1, 0.1)), ([0.0] * 5, (0.0, 0.0))],
)
def test_few_equal_values_have_no_interval_and_more_have_one_without_width(
    values: list[float], bounds: tuple[float | None, float | None]
) -> None:
    result = interval(values)
    assert (result.low, result.high) == bounds


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf]])
def test_no_interval_of_nothing(values: list[float]) -> None:
    with pytest.raises(ValueError, match="needs values, all of them finite"):
        interval(values)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.009, 0.009, ArmVerdict.EQUIVALENT),
        (-0.01, 0.01, ArmVerdict.EQUIVALENT),
        (0.001, 0.009, ArmVerdict.EQUIVALENT),
        (0.001, 0.02, ArmVerdict.BETTER),
        (0.02, 0.03, ArmVerdict.BETTER),
        (-0.001, 0.02, ArmVerdict.UNDECIDED),
        (-0.02, 0.001, ArmVerdict.UNDECIDED),
        (-0.02, -0.001, ArmVerdict.UNDECIDED),
        (-0.02, 0.02, ArmVerdict.UNDECIDED),
        (-0.03, -0.011, ArmVerdict.WORSE),
        (None, None, ArmVerdict.UNDECIDED),
    ],
)
def test_verdicts_of_an_interval_against_a_tolerance_of_a_hundredth(
    low: float | None, high: float | None, verdict: ArmVerdict
) -> None:
    assert judge(Interval(3, 0.0, low, high), 0.01, Direction.MAXIMIZE) is verdict
    if low is not None and high is not None:
        assert judge(Interval(3, 0.0, -high, -low), 0.01, Direction.MINIMIZE) is verdict
    assert verdict.passed == (verdict in (ArmVerdict.EQUIVALENT, ArmVerdict.BETTER))


@given(low=VALUES, width=st.floats(0, 50), tolerance=st.floats(0.001, 50), wider=st.floats(0, 50))
def test_a_wider_interval_or_a_smaller_tolerance_never_decides_more(
    low: float, width: float, tolerance: float, wider: float
) -> None:
    high = low + width
    narrow = judge(Interval(3, 0.0, low, high), tolerance, Direction.MAXIMIZE)
    broad = judge(Interval(3, 0.0, low - wider, high + wider), tolerance, Direction.MAXIMIZE)
    if broad is ArmVerdict.WORSE:
        assert narrow is ArmVerdict.WORSE
    if broad.passed:
        assert narrow.passed
    if narrow is ArmVerdict.EQUIVALENT:
        assert judge(Interval(3, 0.0, low, high), tolerance * 2, Direction.MAXIMIZE) is ArmVerdict.EQUIVALENT


@given(st.lists(VALUES, min_size=2, max_size=8), st.floats(0.001, 50), st.sampled_from(Direction))
def test_so_many_seeds_decide_if_mean_and_spread_stay(
    differences: list[float], tolerance: float, direction: Direction
) -> None:
    assume(judge(interval(differences), tolerance, direction) is ArmVerdict.UNDECIDED)
    assume(max(differences) > min(differences))
    needed = seeds_needed(differences, tolerance, direction)
    if needed is None:
        return
    assert needed > len(differences)
    # As many values of the same mean and spread: half of them a little above, half a little below.
    mean, spread = float(np.mean(differences)), float(np.std(differences, ddof=1))
    count = needed + needed % 2
    step = spread * math.sqrt((count - 1) / count)
    values = [mean - step] * (count // 2) + [mean + step] * (count // 2)
    assert judge(interval(values), tolerance, direction) is not ArmVerdict.UNDECIDED


@pytest.mark.parametrize(
    ("differences", "needed"),
    [([], None), ([0.001], 2), ([0.5, 0.5], 3), ([0.001, -0.001, 0.03], 15), ([0.01, -5.0, 5.0], None)],
)
def test_how_many_seeds_would_decide(differences: list[float], needed: int | None) -> None:
    assert seeds_needed(differences, 0.02, Direction.MAXIMIZE) == needed


def test_at_most_one_in_forty_verdicts_is_wrong() -> None:
    """True differences of none and of just the tolerance, with a spread as large as the tolerance, of five seeds."""
    rng = np.random.default_rng(3)
    verdicts = {
        shift: [judge(interval(list(rng.normal(shift, 0.01, 5))), 0.01, Direction.MAXIMIZE) for _ in range(400)]
        for shift in (0.0, -0.01)
    }
    assert verdicts[0.0].count(ArmVerdict.WORSE) <= 0.025 * 400
    # At the very border of the tolerance at most one in forty passes.
    assert sum(v.passed for v in verdicts[-0.01]) <= 0.025 * 400 + 8


def test_arms_are_compared_seed_by_seed_with_the_first() -> None:
    """The seeds spread by tenths, and the formats differ by thousandths: unpaired nothing could be decided."""
    base = {0: 0.5, 1: 0.7, 2: 0.9}
    values = {
        FP32: base,
        BF16: {n: v + d for (n, v), d in zip(base.items(), (0.001, -0.001, 0.0), strict=True)},
        FP16: {n: v - 0.1 + d for (n, v), d in zip(base.items(), (0.001, -0.001, 0.0), strict=True)},
    }
    first, second, third = compare_arms(SPEC, values)
    assert (first.verdict, second.verdict, third.verdict) == (None, ArmVerdict.EQUIVALENT, ArmVerdict.WORSE)
    assert second.metric is not None and second.metric.half is not None and second.metric.half > 0.4
    assert second.difference is not None and second.difference.half == pytest.approx(0.0025, abs=2e-4)


def test_a_run_that_failed_is_not_left_out_as_if_it_had_not_been() -> None:
    base = {0: 0.5, 1: 0.7, 2: 0.9, 3: 0.8}
    values = {FP32: base, BF16: {0: 0.5, 1: 0.7, 2: 0.9}, FP16: {}}
    _, second, third = compare_arms(SPEC, values)
    assert (second.verdict, third.verdict, third.metric) == (ArmVerdict.UNDECIDED, ArmVerdict.UNDECIDED, None)
    worse = compare_arms(SPEC, {FP32: base, BF16: {0: 0.1, 1: 0.3, 2: 0.51}})[1]
    assert worse.verdict is ArmVerdict.WORSE


def test_an_arm_that_diverged_where_the_first_one_did_not_is_worse() -> None:
    base = {0: 0.5, 1: 0.7, 2: 0.9}
    values = {FP32: base, BF16: base, FP16: {}}
    diverged = {FP32: {3}, BF16: {3}, FP16: {0, 1, 2}}
    verdicts = [result.verdict for result in compare_arms(SPEC, values, diverged)]
    assert verdicts == [None, ArmVerdict.EQUIVALENT, ArmVerdict.WORSE], "with the last seed the first arm diverged, too"


@pytest.mark.parametrize(
    ("text", "absolute", "printed"), [("0.5%", 0.004, "0.5%"), ("0.01", 0.01, "0.01"), (" 2 % ", 0.016, "2%")]
)
def test_tolerances_are_relative_to_the_first_arm_or_in_the_metric_s_unit(
    text: str, absolute: float, printed: str
) -> None:
    assert Tolerance.parse(text).absolute(-0.8) == pytest.approx(absolute)
    assert str(Tolerance.parse(text)) == printed


@pytest.mark.parametrize("text", ["0", "-1%", "x", "", "%", "inf", "nan%"])
def test_no_other_tolerance_is_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"a number above 0, or a percentage such as 0\.5%"):
        Tolerance.parse(text)


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("test_accuracy", Direction.MAXIMIZE), ("error_free_rate", Direction.MAXIMIZE),
        ("test_loss", Direction.MINIMIZE), ("Perplexity", Direction.MINIMIZE), ("val-mse", Direction.MINIMIZE),
        ("bits_per_byte", Direction.MINIMIZE), ("score", None),
    ],
)  # fmt: skip
def test_less_of_a_loss_is_better(metric: str, direction: Direction | None) -> None:
    assert infer_direction(metric) is direction


@pytest.mark.parametrize("precisions", [["fp32"], ["fp32", "fp32"], ["fp32", "auto"], ["fp32", "fp8"]])
def test_formats_that_make_no_comparison_are_refused(precisions: list[str]) -> None:
    with pytest.raises(ValidationError):
        ComparisonSpec.model_validate(SPEC.model_dump() | {"precisions": precisions})


def names(types: list[SmallerType]) -> list[str]:
    return [each.instance_type for each in types]


def test_smaller_types_hold_the_measured_memory_and_cost_less() -> None:
    catalogue, region = builtin(), "us-east-1"
    current = catalogue.get("g6e.xlarge")
    declared = Resources(vcpus=4, memory_gib=16, gpus=1, gpu_memory_gib=40)
    arm, first = Footprint(memory_gib=5, gpu_gib=13), Footprint(memory_gib=5, gpu_gib=30)
    cheaper_types = smaller_types(catalogue, region, current, declared, arm, first, 100.0)
    assert "g4dn.xlarge" in names(cheaper_types)
    assert names(cheaper_types) == names(sorted(cheaper_types, key=lambda t: t.usd_per_hour))
    ceiling = catalogue.on_demand(current.name, region)
    assert ceiling is not None
    for each in cheaper_types:
        kind = catalogue.get(each.instance_type)
        assert kind.gpu_memory_gib >= 13 and kind.gpus >= 1 and each.usd_per_hour < ceiling.usd_per_hour
        assert each.new == (kind.gpu_memory_gib < 30 * 1.1)
        assert each.epoch_seconds == (100.0 if kind.gpu == current.gpu else None)
        assert (each.epoch_usd is None) == (each.epoch_seconds is None)
    larger = smaller_types(catalogue, region, current, declared, first, first, 100.0)
    assert set(names(larger)) < set(names(cheaper_types)) and not any(each.new for each in larger)


def test_without_a_measurement_or_a_price_no_type_is_named() -> None:
    catalogue, declared = builtin(), Resources(vcpus=2, memory_gib=4)
    current = catalogue.get("m6i.xlarge")
    footprint = Footprint(memory_gib=1.0)
    assert smaller_types(catalogue, "us-east-1", current, declared, Footprint(), footprint, 1.0) == []
    assert smaller_types(catalogue, "mars-1", current, declared, footprint, footprint, 1.0) == []
    on_processors = smaller_types(catalogue, "us-east-1", current, declared, footprint, Footprint(memory_gib=7.5), 60.0)
    assert on_processors and all(catalogue.get(each.instance_type).gpus == 0 for each in on_processors)
    assert all(each.epoch_seconds == 60.0 for each in on_processors)
    assert {each.new for each in on_processors} >= {True}


@pytest.mark.parametrize(
    ("name", "burstable"),
    [("t3.micro", True), ("t4g.small", True), ("e2-micro", True), ("e2-small", True), ("m6i.large", False),
     ("trn1.2xlarge", False), ("e2-standard-4", False), ("n2-standard-4", False)],
)  # fmt: skip
def test_the_types_whose_processors_are_their_own_for_a_part_of_the_time(name: str, burstable: bool) -> None:
    assert InstanceType(name=name, vcpus=2, memory_gib=1).is_burstable == burstable


def test_no_burstable_type_is_named() -> None:
    catalogue, region, footprint = builtin(), "us-east-1", Footprint(memory_gib=0.1)
    assert "t3.micro" in catalogue.offered(region)
    declared = Resources(vcpus=1, memory_gib=0.5)
    cheaper = smaller_types(catalogue, region, catalogue.get("m6i.xlarge"), declared, footprint, footprint, 1.0)
    assert cheaper and not any(catalogue.get(each.instance_type).is_burstable for each in cheaper)
