"""Documents from events of version 1, the form in which tests write them: as a reader of an old journal makes them."""

from probe_format import jsonio
from probe_format.journal.fold import Fold
from probe_format.journal.version1 import Upgrade
from probe_format.write import Documents


def upgraded(events):
    """The events as this version writes them."""
    upgrade = Upgrade()
    found = [new for old in events for new in upgrade.event(old)]
    return [*found, upgrade.files_written()]


def fold_of(events, **options):
    """The fold of events of this version."""
    fold = Fold(**options)
    for event in events:
        fold.take(event)
    return fold


def documents_of(fold):
    """The documents in a fold, parsed."""
    pages = fold.pages()
    files = {name: jsonio.loads(b"".join(chunks)) for name, chunks in pages.files().items()}
    dump = next(iter(files.values()))
    stack, construct = files.get("stack.json", {}), files.get("construct.json", {})
    return Documents(dict(pages.header), dump["data"], stack, construct, dict(pages.coverage), pages.faults)


def bytes_of(documents):
    """The files of these documents."""
    return {name: b"".join(chunks) for name, chunks in documents.pages().files().items()}


def assemble(events):
    """The documents that events of version 1 add up to."""
    return documents_of(fold_of(upgraded(events)))
