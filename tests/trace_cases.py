"""Texts of traces that change one good job, and the messages of a refusal."""

GOOD = {
    "job_id": "a17",
    "arrival_s": "0",
    "duration_s": "3600",
    "slo": "1.5",
    "rollout_s": "100",
    "train_s": "50",
    "model_b": "7",
}


def csv_text(*rows, without=()):
    """Return CSV text; each row changes the good job, ``without`` leaves columns out."""
    columns = [c for c in GOOD if c not in without]
    for row in rows:
        columns += [c for c in row if c not in columns and c not in without]
    lines = [",".join(columns)]
    for i, row in enumerate(rows):
        cells = {**GOOD, "job_id": f"j{i}", **row}
        lines.append(",".join(_quoted(cells.get(c, "")) for c in columns))
    return "\n".join(lines) + "\n"


def _quoted(text):
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text


def messages(error):
    first, *rest = str(error).splitlines()
    assert len(rest) == len(error.faults)
    assert f"{error.total} fault" in first
    return rest
