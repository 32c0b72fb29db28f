"""A colour for each job: chosen ones first, then as many as people can tell apart."""

CHOSEN = 8
"""Colours of page.css, fit for light and dark."""
DISTINCT = 48
"""Number of distinct colours. With more jobs the colours repeat, and the legend says so."""
_GOLDEN_ANGLE = 137.508  # degrees: hues that follow each other lie far apart, however many there are
_LIGHT = (46, 60, 36)  # percent


def fill(index: int) -> str:
    """Return the attributes that give a shape the colour of job number `index`."""
    index %= DISTINCT
    return f'class="j{index}"' if index < CHOSEN else f'class="jx" style="--c:{_hsl(index)}"'


def swatch(index: int) -> str:
    """Return the same for a patch of the legend."""
    index %= DISTINCT
    return f'class="swatch j{index}"' if index < CHOSEN else f'class="swatch jx" style="--c:{_hsl(index)}"'


def warning(count: int) -> str:
    """Return a note for the legend if there are more jobs than colours."""
    if count <= DISTINCT:
        return ""
    return f"{count} jobs share {DISTINCT} colours: a bar's title says whose it is."


def _hsl(index: int) -> str:
    return f"hsl({index * _GOLDEN_ANGLE % 360:.0f} 52% {_LIGHT[index % len(_LIGHT)]}%)"
