"""Summaries of the results of a sweep."""
from __future__ import annotations

import collections
from typing import Any, Callable, Iterable

VERDICTS = ("pass", "slow", "disputed", "open", "wrong", "crash", "hang", "error", "broken", "invalid")


def counts(results: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], str], title: str) -> str:
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for r in results:
        rows[key(r)][r["verdict"]] += 1
    total: collections.Counter[str] = collections.Counter()
    for row in rows.values():
        total.update(row)
    shown = [v for v in VERDICTS if total[v]]
    width = max([len(k) for k in rows] + [len(title)])
    lines = [f"{title:{width}}  {'cases':>6}" + "".join(f"{v:>9}" for v in shown)]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        lines.append(f"{name:{width}}  {sum(row.values()):6}" + "".join(f"{row[v] or '':>9}" for v in shown))
    return "\n".join(lines)


def implementations(results: Iterable[dict[str, Any]]) -> str:
    cases: collections.Counter[str] = collections.Counter()
    wrong: collections.Counter[str] = collections.Counter()
    for r in results:
        for name in r.get("implementations", {}):
            cases[name] += 1
            wrong[name] += r["verdict"] in ("wrong", "crash")
    width = max([len(n) for n in cases] + [20])
    return "\n".join([f"{'implementation':{width}}  {'cases':>6}  with a wrong one"] +
                     [f"{name:{width}}  {n:6}  {wrong[name] or ''}" for name, n in sorted(cases.items())])


def slow_kinds(results: Iterable[dict[str, Any]]) -> str:
    """Slow cases by what they have in common: family, type, the library's instruction set and what it chose."""
    found: dict[str, list[float]] = collections.defaultdict(list)
    for r in results:
        if r["verdict"] == "slow":
            chosen = " + ".join(i for i in r["implementations"] if not i.startswith("reorder")) or "no library"
            found[f"{r['family']} {r['dtype']} {r['library']}: {chosen}"].append(r["ms"] / r["peer_ms"])
    rows = sorted(found.items(), key=lambda kv: -max(kv[1]))
    return "\n".join([f"{'slow':>6}{'median':>8}{'most':>8}"] +
                     [f"{len(v):6}{sorted(v)[len(v) // 2]:7.0f}x{max(v):7.0f}x  {name}" for name, v in rows])


def settled(results: Iterable[dict[str, Any]]) -> str:
    """Disputed cases by who agrees with the plain loops."""
    found = collections.Counter(f"{r['settled']}: {r['family']} {r['dtype']}" for r in results if r["verdict"] == "disputed")
    return "\n".join(f"{n:6} disputed, right by {who}" for who, n in sorted(found.items()))


def summary(results: list[dict[str, Any]]) -> str:
    ran = [r for r in results if "isa" in r]
    parts = [counts(ran, lambda r: f"{r['family']} {r['dtype']}", "family and type"),
             counts(ran, lambda r: f"{r['isa']}/{r['library']} {r['kind']}", "mode"),
             counts(ran, lambda r: f"{'dynamic' if r['dynamic'] else 'static'} threads={r['threads']}", "sizes, threads"),
             implementations(ran), slow_kinds(ran), settled(ran)]
    slow = sorted((r for r in ran if r["verdict"] == "slow"), key=lambda r: -r["ms"] / r["peer_ms"])
    parts += [f"slow: {r['ms'] / r['peer_ms']:.1f} x {r['number']} {r['family']} {r['dtype']} {r['isa']}/{r['library']} "
              f"{r['kind']} {r['nodes']} [{r['shapes']}] {', '.join(r.get('implementations', {}))}" for r in slow]
    parts += [f"{r['verdict']}: {r['number']} {r.get('family', '')} {r.get('dtype', '')} {r.get('isa', '')}/"
              f"{r.get('library', '')} {r.get('kind', '')} {r.get('nodes', '')} [{r.get('shapes', '')}] {r['detail']}"
              for r in results if r["verdict"] not in ("pass", "slow", "invalid", "disputed")]
    return "\n\n".join(filter(None, parts[:6])) + "\n\n" + "\n".join(parts[6:])
