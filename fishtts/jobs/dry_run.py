"""What a batch would make, printed for people or for scripts.

Loads no model and touches no folder.
"""

from __future__ import annotations

from collections.abc import Sequence

from fishtts.errors import LimitError
from fishtts.jobs import speeds
from fishtts.jobs.plan import Job, Planner
from fishtts.jobs.progress import readable_time
from fishtts.printing import print_json, print_line
from fishtts.text.script import Script


def print_plan(
    jobs: Sequence[Job], script: Script, planner: Planner, *, device: str, as_json: bool
) -> None:
    """Print what would be made.

    Raises: ``LimitError`` where words would be missing.
    """
    estimated_s = sum(job.expected_s for job in jobs)
    model = planner.card.name
    rate = speeds.recall(model, device)
    work_s = estimated_s / rate if rate else None
    if as_json:
        print_json(
            {
                "model": model,
                "seed": planner.settings.speech.seed,
                "format": script.format,
                "estimated_seconds": round(estimated_s, 2),
                "estimated_work_seconds": None if work_s is None else round(work_s, 1),
                "items": [_item(job) for job in jobs],
                "chunks": [chunk for job in jobs for chunk in _chunks(job)],
            }
        )
    else:
        for job in jobs:
            if job.plan is None:
                print_line(f"{job.name}  (skipped: {job.reason})")
            for chunk in _chunks(job):
                print_line(f"{job.name}  {chunk['model_text'] or '(nothing to say)'}")
        time = (
            f", about {readable_time(work_s)} of work at the speed of the last run here"
            if work_s is not None
            else "; how long that takes here is known after a first run"
        )
        num_spoken = sum(job.plan is not None for job in jobs)
        print_line(
            f"{num_spoken} of {len(jobs)} lines to speak,"
            f" about {readable_time(estimated_s)} of audio{time}"
        )
    _raise_losses(jobs)


def _item(job: Job) -> dict[str, object]:
    return {
        "id": job.line.id,
        "line": job.line.number,
        "text": job.line.text,
        "model_text": job.model_text,
        "voice": job.voice.name,
        "seed": job.config.seed,
        "take": job.take,
        "file": job.file,
        "heading": job.line.heading,
        "estimated_seconds": round(job.expected_s, 2),
        "skipped": job.reason,
        "shortfalls": list(job.plan.shortfalls) if job.plan else [],
    }


def _chunks(job: Job) -> list[dict[str, object]]:
    return [
        {
            "id": job.line.id,
            "text": planned.unit.text,
            "model_text": planned.unit.model_text,
            "voice": planned.voice or job.voice.name,
            "seed": planned.seed,
            "pause_s": planned.unit.pause_s,
            "estimated_seconds": round(planned.expected_s / job.config.speed, 2),
            "warnings": list(planned.unit.warnings),
        }
        for planned in (job.plan.units if job.plan else ())
    ]


def _raise_losses(jobs: Sequence[Job]) -> None:
    """Let the exit code of a dry run say where words would be missing."""
    lost = [job for job in jobs if job.loses_words or (job.plan and job.plan.shortfalls)]
    if lost:
        first = lost[0].reason or (lost[0].plan.shortfalls[0] if lost[0].plan else "")
        raise LimitError(f"{len(lost)} of {len(jobs)} lines lose words; {lost[0].name}: {first}")
