"""Prices, ratings and figures of Google Cloud: requests follow the official documents, and answers are parsed."""

from datetime import UTC, datetime
from typing import Any

import pytest
from everspot_clouds.gcp import gauges, placement, prices
from everspot_core.cluster.gauges import Gauge
from everspot_local.gcp.discovery import Api

AT = datetime(2026, 7, 20, 7, tzinfo=UTC)
REGION = "/compute/v1/projects/p/regions/europe-west4"


def accepted(document: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    method = Api(document, empties=document != "compute.v1").find("POST", path)
    assert method is not None and method.method.body is not None
    return method.method.body.read(body)


@pytest.mark.parametrize(
    ("types", "zone", "shape", "selections"),
    [
        (["g2-standard-4", "g2-standard-8"], "europe-west4-a", "ANY_SINGLE_ZONE",
         {"built-in": {"machineTypes": ["g2-standard-4", "g2-standard-8"]}}),
        (["n1-standard-8+t4"], "", "ANY",
         {"n1-standard-8-nvidia-tesla-t4-1": {
             "machineTypes": ["n1-standard-8"],
             "guestAccelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 1}],
         }}),
    ],
)  # fmt: skip
def test_ratings_are_asked_for_types_that_stand_in_for_each_other(types, zone, shape, selections) -> None:
    body = accepted("compute.v1", f"{REGION}/advice/capacity", placement.request(types, 4, zone))
    assert body["instanceFlexibilityPolicy"]["instanceSelections"] == selections
    assert body["distributionPolicy"]["targetShape"] == shape
    assert body["instanceProperties"]["scheduling"]["provisioningModel"] == "SPOT"
    assert body["size"] == 4


@pytest.mark.parametrize(
    ("answer", "rated"),
    [
        ({"recommendations": [{"scores": {"obtainability": 0.7, "estimatedUptime": "3600s"}}]}, 0.7),
        ({"recommendations": [{"scores": {"estimatedUptime": "60s"}}]}, 0.0),
        ({"recommendations": [{"scores": {}}]}, 0.0),
        ({"recommendations": []}, None),
        ({}, None),
    ],
)
def test_a_rating_is_read_from_the_first_recommendation(answer: dict[str, Any], rated: float | None) -> None:
    assert placement.obtainability(answer) == rated


def test_ratings_are_told_from_one_to_ten() -> None:
    assert [placement.scale_rating(rated) for rated in (0.0, 0.04, 0.3, 0.7, 1.0)] == [1, 1, 3, 7, 10]


def record(start: str, nanos: int, units: str = "0", currency: str = "USD") -> dict[str, Any]:
    price: dict[str, Any] = {"currencyCode": currency, "nanos": nanos}
    if units != "0":  # proto-JSON tells no zero
        price["units"] = units
    return {"interval": {"startTime": start}, "listPrice": price}


def test_prices_are_read_with_their_beginnings() -> None:
    answer = {
        "priceHistory": [
            record("2026-07-20T07:00:00Z", 380_000_000),
            record("2026-07-01T07:00:00Z", 250_000_000, units="1"),
            record("2026-07-21T07:00:00Z", 400_000_000, currency="EUR"),
            {"interval": {"startTime": "2026-07-22T07:00:00Z"}, "listPrice": {"currencyCode": "USD"}},
        ]
    }
    steps = prices.read(answer)
    assert [(at.day, usd) for at, usd, _ in steps] == [(1, 1.25), (20, 0.38)]
    assert prices.in_force(steps, datetime(2026, 7, 10, tzinfo=UTC)) == steps
    assert prices.in_force(steps, AT) == steps[1:]
    assert prices.in_force(steps, datetime(2026, 6, 1, tzinfo=UTC)) == steps


def test_the_catalogues_price_has_its_own_date_and_source() -> None:
    (step,) = prices.listed("n1-standard-8+t4", "europe-west4")
    assert step[:2] == (datetime(2026, 1, 1, tzinfo=UTC), 0.34234)
    assert "skypilot" in step[2]
    assert prices.listed("x9-huge", "europe-west4") == ()


def test_figures_are_written_as_custom_metrics() -> None:
    body = gauges.request("p", "train", "europe-west4", "everspot", {Gauge.USD_PER_HOUR: 1.5, Gauge.TICKS: 12}, AT)
    read = accepted("monitoring.v3", "/v3/projects/p/timeSeries", body)
    assert [series["metric"]["type"] for series in read["timeSeries"]] == [
        "custom.googleapis.com/everspot/usd_per_hour", "custom.googleapis.com/everspot/ticks",
    ]  # fmt: skip
    assert read["timeSeries"][0]["points"][0]["value"] == {"doubleValue": 1.5}
