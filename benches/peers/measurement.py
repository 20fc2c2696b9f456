"""Measures one contestant once: starts it, warms it up, loads it, and says what it cost and what was wrong."""

import contextlib
from dataclasses import dataclass, field

import cpu
import loopback
import servers
from load import Load, NothingMeasured

WARM_UP_SECONDS = 1
REFUSED_AT_LEAST = 0.95
OTHERS_AT_MOST = 0.10  # beyond it, neighbours change how much work a proxy finds at each wake-up, and so its cost


@dataclass
class Measurement:
    case: str
    name: str
    requests_per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    proxy_us: float | None = None  # CPU per request
    redis_us: float | None = None
    script_calls: float | None = None  # per request
    refused: float | None = None  # share of answers that were not 2xx
    others: float | None = None  # share of the machine's busy time taken by what is not ours
    statuses: dict = field(default_factory=dict)  # of the warm-up: how many answers had which
    problems: list = field(default_factory=list)  # any of these makes it invalid

    @property
    def quiet(self):
        return self.others is not None and self.others <= OTHERS_AT_MOST


@dataclass(frozen=True)
class Reading:
    """The clocks read before and after a load; their difference is what the load cost."""

    proxy: float
    redis: float
    load: float
    machine: float
    script_calls: int

    @classmethod
    def take(cls, proxy, load, redis):
        return cls(
            proxy=cpu.seconds_of(proxy.pid),
            redis=cpu.seconds_of(redis.process.pid) if redis else 0,
            load=cpu.seconds_of(load.process.pid),
            machine=cpu.seconds_of_machine(),
            script_calls=redis.script_calls() if redis else 0,
        )


def measure(contestant, state, program, binary, seconds):
    result = Measurement(contestant.case, contestant.name)
    port, upstream = loopback.free_port(), loopback.free_port()
    try:
        with contextlib.ExitStack() as stack:
            redis = stack.enter_context(servers.Redis.started(state)) if contestant.redis else None
            # Its server listens before the proxy starts.
            started = Load.started(program, port, upstream, contestant.connections, contestant.keys)
            load = stack.enter_context(started)
            proxy = stack.enter_context(servers.proxy(contestant, state, port, upstream, redis, binary))
            result.statuses = load.run(WARM_UP_SECONDS)["statuses"]
            before = Reading.take(proxy, load, redis)
            measured = load.run(seconds)
            after = Reading.take(proxy, load, redis)
    except (loopback.DidNotStart, NothingMeasured) as failure:
        result.problems.append(str(failure))
        return result
    record(result, contestant, measured, before, after)
    result.problems += problems(result, contestant, measured)
    return result


def record(result, contestant, load, before, after):
    requests = max(load["requests"], 1)
    duration = load["duration_us"] / 1e6
    result.requests_per_second = load["requests"] / duration
    result.p50_ms = load["p50_us"] / 1e3
    result.p99_ms = load["p99_us"] / 1e3
    result.proxy_us = (after.proxy - before.proxy) / requests * 1e6
    result.refused = 1 - load["statuses"].get("200", 0) / requests
    if contestant.redis:
        result.redis_us = (after.redis - before.redis) / requests * 1e6
        result.script_calls = (after.script_calls - before.script_calls) / requests
    ours = sum(getattr(after, part) - getattr(before, part) for part in ("proxy", "redis", "load"))
    machine = after.machine - before.machine
    result.others = max(0, machine - ours) / machine if machine else 0


def problems(result, contestant, load):
    """Everything that makes the figures mean something else than the case says."""
    if not load["requests"]:
        yield "no request was answered"
    expected = "429" if contestant.refuses else "200"
    warm_up = sum(result.statuses.values())
    share = result.statuses.get(expected, 0) / warm_up if warm_up else 0
    if contestant.refuses:
        if share <= REFUSED_AT_LEAST or result.refused <= REFUSED_AT_LEAST:
            yield f"only {min(share, result.refused):.1%} refused: {result.statuses} in the warm-up"
    else:
        if share < 1 or result.refused:
            yield f"answers other than 200: {load['statuses']}, {result.statuses} in the warm-up"
        if contestant.redis and result.script_calls * contestant.batch < 1:
            yield f"{result.script_calls:.4f} script calls per request: not every decision went to Redis"
