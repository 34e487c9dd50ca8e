"""How --help is drawn: as cyclopts draws it, each option in one paragraph however it is written in the code."""

from typing import Any


class Help:
    """cyclopts' own drawing, made when it is asked for: rich is imported then."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        from rich.text import Text

        for entry in panel.entries:
            said = getattr(entry.description, "primary_renderable", None)
            if isinstance(said, Text):
                said.plain = " ".join(said.plain.split())
        _drawing()(console, options, panel)

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        """The line that begins with Usage."""
        _drawing().render_usage(console, options, usage)

    def render_description(self, console: Any, options: Any, description: Any) -> None:
        """What the command does."""
        _drawing().render_description(console, options, description)


def _drawing() -> Any:
    from cyclopts.help import DefaultFormatter

    return DefaultFormatter()
