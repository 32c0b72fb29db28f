"""Makes sentences of actions and their reasons, for logs and for people. It decides nothing."""

from everspot_core.costs.team_budgets import Unit
from everspot_core.schedule.actions import (
    Action,
    Assign,
    ClearAssignment,
    CompleteAssignment,
    Cordon,
    DropDrills,
    Expire,
    Finish,
    Hold,
    Launch,
    Leave,
    ReasonFigures,
    Refuse,
    Release,
    RestoreAssignment,
    Stay,
    Stop,
    VoidAssignment,
    Why,
)
from everspot_core.schedule.provisioning.suspension import SUSPENDED

_BECAUSE = {
    Why.PREFERRED_MARKET: "the market that its priority prefers",
    Why.OTHER_MARKET: "nothing of the market that its priority prefers was free",
    Why.HALF_DONE: "its assignment was half done",
    Why.UNWANTED: "the job or the instance is no longer eligible",
    Why.OWNER_LEFT: "the lease is over",
    Why.TAKEN_BACK: "its owner was presumed dead and has reclaimed it",
    Why.UNKNOWN_JOB: "the job was never submitted",
    Why.LEASE_EXPIRED: "its lease was not renewed for {lease_ttl_seconds} s",
    Why.INSTANCE_GONE: "its instance is gone",
    Why.INTERRUPTION: "the cloud takes it or ends it",
    Why.CANCEL: "it was cancelled",
    Why.DRAIN: "the cluster is being drained",
    Why.DRILL: "an interruption was ordered as a drill",
    Why.DOLLARS: "it has spent ${spent} of its budget of ${budget}",
    Why.GPU_HOURS: "it has used {spent} of the {budget} GPU-hours of its budget",
    Why.WALL_CLOCK: "{spent:.0f} s have passed since submission, its budget is {budget:.0f} s",
    Why.UNDERUSED: "its GPUs computed for {share:.0f} % of the last {span}, and its limit is {limit:g} %",
    Why.AFTER: "it comes after {jobs}",
    Why.AFTER_SKIPPED: "it was to come after {job}, which was skipped",
    Why.CONDITION: "{words}",
    Why.METRIC_MISSING: "its run_if cannot be judged: {words}",
    Why.SAME_NAME: "{job} has to end first, because its run_if compares with that job's metrics",
    Why.SAME_STAGE: "{job} is the same cached stage; it is awaited, and its outputs will be this job's",
    Why.REUSED: "{job} has computed the same stage",
    Why.AFTER_FAILED: "it was to come after {job}, which {state}",
    Why.LOST_OFTEN: "{loss} {times} times in a row, and it came no further; "
    "`everspot retry` goes on from its newest checkpoint",
    Why.IDLE_ATTEMPTS: "its last {times} attempts ended without progress, the newest one by `{reason}`; "
    "`everspot retry` goes on from its newest checkpoint",
    Why.HEAD_AHEAD: "its checkpoints belong to epoch {head} and its record to epoch {epoch}, so that no instance could "
    "save its work; `everspot retry` goes on from its newest checkpoint as a new job",
    Why.NOT_YET: "it begins at {start} or later",
    Why.OUTSIDE_WINDOW: "it runs from {window} only; that is {opens}",
    Why.TEAM_BUDGET: "team {team} {cap_use}",
    Why.ENVIRONMENT_BUDGET: "the environment {cap_use}",
    Why.BACK_OFF: "it waits {seconds:.0f} s after an error",
    Why.DENIED: "a permission is missing; it was denied {times} times in a row and is tried again at {until}: {detail}",
    Why.NO_FREE_INSTANCE: "none of {present} instances that could hold it is free",
    Why.KEPT_FOR_CRITICAL: "the on-demand instance that is free is kept for a critical job",
    Why.NO_TYPE_FITS: "none of the {types} known instance types can hold it; {nearest} comes nearest and lacks {lacks}",
    Why.NOTHING_SEEN: "no instance has reported yet",
    Why.ALREADY_STOPPING: "the job has been stopped or is over",
    Why.SPOT_AVAILABLE: "spot capacity is available",
    Why.NO_SPOT: "no spot pool can hold it",
    Why.UNKNOWN_LENGTH: "it has a deadline, and how long it runs is not known: it cannot wait",
    Why.SHORT_SPELLS: "recent spells of spot were shorter than a changeover; the present one has lasted "
    "{up_hours:.2f} h of the required {needed_hours:.2f} h",
    Why.NO_SPOT_YET: "there is no spot; it has waited {hours:.1f} h of at most {limit_hours:.0f} h",
    Why.WAITED_LONG: "it has waited {hours:.1f} h, and there is no spot",
    Why.WAIT_FOR_SPOT: "there is no spot, and the job can wait {slack_hours:.2f} h for it",
    Why.LAST_SAFE_MOMENT: "{left_hours:.2f} h of work and {time_hours:.2f} h are left, a changeover may take "
    "{changeover_hours:.2f} h: later would be too late",
    Why.ON_DEMAND_PAYS: "there has been no spot for {down_hours:.2f} h; starting on-demand now keeps "
    "{slack_hours:.2f} h of slack for later",
    Why.STAY_ON_DEMAND: "spot has been back for {up_hours:.2f} h; the job moves back after {needed_hours:.2f} h",
    Why.BACK_TO_SPOT: "spot has been back for {up_hours:.2f} h; a move needs {needed_hours:.2f} h",
    Why.RUNS_WELL: "it runs on {market} as it should",
    Why.TYPE_SUSPENDED: SUSPENDED,
    Why.NO_CAPACITY: "none of {tried} pools has capacity for it",
    Why.AT_CAP: "the cap on launched instances leaves no space for {nodes} more at ${needed_usd:.2f} an hour: "
    "{instances} of {most} instances run or start, at ${usd:.2f} of {most_usd} an hour; {reserved} are reserved for "
    "jobs ahead",
    Why.AT_RISK: "{left_hours:.2f} h of work and {time_hours:.2f} h are left, and on-demand is not available either",
    Why.CRITICAL: "it is critical, and does not wait for spot",
    Why.FAILED_OVER: "it lost {preemptions} spot instances within {window_hours:.2f} h",
    Why.SMALLER_MIXED: "after {preemptions} lost spot instances it changes to mixed precision on a smaller type; "
    "it still arrives in time",
    Why.SMALLER_TYPE: "after {preemptions} lost spot instances a smaller type will do; it still arrives in time",
    Why.ON_ITS_WAY: "{instances} instance(s) that it will move to are on their way",
    Why.FREE_SOON: "an instance is free for it in about {minutes:.1f} min, about as soon as a launch would bring one",
    Why.MOVE: "what it moves to is ready ({market})",
    Why.INFEASIBLE: "its deadline cannot be kept; the earliest is {earliest}, for about ${usd}",
    Why.NEEDED_NO_MORE: "no job needs it any longer",
    Why.IDLE: "it has been idle for {minutes:.1f} min of at most {limit_minutes:.1f} min",
    Why.KEPT_FOR_GANG: "what is free is promised to {ahead}, which is ahead of it and would have to wait longer",
    Why.UNFIT: "it is not fit for jobs: {detail}",
    Why.JOBS_FAILED: "{jobs} failed there, and did well elsewhere",
    Why.EXCESS: "the fleet of its market has {units} units and is declared with {target}",
    Why.OLD_GENERATION: "it runs generation {was}; cluster.json declares {now}",
    Why.ROLL: "it runs generation {was}; cluster.json declares {now}, and busy instances are replaced too",
    Why.TO_PEER: "it is to be offered to {cluster}",
    Why.RECALLED: "it goes back to {home}: {because}",
    Why.TOO_FEW_FREE: "it needs {nodes} instances at once, and fewer of the {present} that could hold it are free",
}


def because(action: Action) -> str:
    """Return the reason of an action, with its figures."""
    figures = action.figures
    if action.cause in (Why.TEAM_BUDGET, Why.ENVIRONMENT_BUDGET):
        figures = {**figures, "cap_use": _describe_cap(figures)}
    if action.cause is Why.LOST_OFTEN:
        figures = {**figures, "loss": _loss(figures)}
    return _BECAUSE[action.cause].format(**figures)


def _loss(figures: ReasonFigures) -> str:
    """Return the loss that a job had again and again, and whether the cloud took it."""
    ended, times = int(str(figures["ended"])), int(str(figures["times"]))
    if not ended:
        return "its lease was lost"
    cloud = "the cloud took or ended its instance"
    return cloud if ended == times else f"its lease was lost, or {cloud} ({ended} times),"


def _describe_cap(figures: ReasonFigures) -> str:
    """Return the state of a budget in words: spent, committed, cap."""
    spent, committed, requested, cap = (_amount(figures, name) for name in ("spent", "committed", "asked", "cap"))
    request_clause = f"; this job asks for {requested}" if figures["asked"] else ""
    return (
        f"has spent {spent} of its {cap} a {figures['period']}, and {committed} more is committed to running jobs"
        f"{request_clause}; until {figures['until']}"
    )


def _amount(figures: ReasonFigures, name: str) -> str:
    """Return dollars to the cent, and two figures of less than that; GPU-hours to the tenth."""
    value = float(str(figures[name]))
    if figures["unit"] != Unit.DOLLARS.words:
        return f"{value:.1f} {figures['unit']}"
    return f"${value:,.2f}" if value >= 0.01 or value == 0 else f"${value:.2g}"


def describe_action(action: Action) -> str:
    """Return the action and its reason in one sentence."""
    return f"{_deed(action)}: {because(action)}"


def _deed(action: Action) -> str:
    match action:
        case Assign():
            return (
                f"assign {action.job_id} to {action.instance_id} "
                f"({action.instance_type}, {action.zone}, {action.market.value}), epoch {action.epoch}"
            )
        case CompleteAssignment():
            return f"complete the assignment of {action.job_id} to {action.instance_id}, epoch {action.epoch}"
        case VoidAssignment():
            return f"give up the assignment of {action.job_id} to {action.instance_id}, epoch {action.epoch}"
        case ClearAssignment():
            return f"clear {action.instance_id} of {action.job_id}, epoch {action.epoch}"
        case RestoreAssignment():
            return f"restore the assignment of {action.job_id} to {action.instance_id}, epoch {action.epoch}"
        case Stop():
            return f"stop {action.job_id} on {action.instance_id}, epoch {action.epoch}"
        case Cordon():
            return f"put nothing more on {action.instance_id}"
        case Expire():
            return f"take {action.job_id} from {action.instance_id}, epoch {action.epoch}"
        case Finish():
            return f"end {action.job_id} as {action.state.value}"
        case DropDrills():
            return f"forget {len(action.drills)} drill(s) of {action.job_id}"
        case Hold():
            return f"hold {action.job_id}"
        case Launch():
            kind = f"{action.instance_type}, {action.zone}, {action.market.value}"
            return f"launch {action.count} instance(s) for {action.job_id} ({kind})"
        case Leave():
            return f"order {action.instance_id} to leave"
        case Release():
            return f"release {action.instance_id}"
        case Stay():
            return f"leave {action.job_id} on {action.instance_id}"
        case Refuse():
            return f"refuse {action.job_id}"
