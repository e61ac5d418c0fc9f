"""`kproto completion`: the script that completes commands, verbs, options and their values in bash and zsh.

A verb is the second word of a command, such as `list` in `kproto topics list`.

The script is static, so that pressing Tab starts no process. `script` generates it from the parsers of the
commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from shlex import quote

from .arguments import Parser, Subparsers

# In zsh, `bashcompinit` runs this bash function, which finds the command and the verb in the words before the
# cursor. If no word of the command matches, the shell completes file names.
_SCRIPT = """\
# Completion of kproto in bash and zsh: eval "$(kproto completion)"
if [ -n "${ZSH_VERSION-}" ]; then
    autoload -U +X compinit && compinit -u
    autoload -U +X bashcompinit && bashcompinit
fi
_kproto() {
    local current previous="" command="" word words="" number=0
    for word in "${COMP_WORDS[@]}"; do
        number=$((number + 1))
        [ "$number" -gt "$COMP_CWORD" ] && break
        previous="$word"
        case "$command $word" in
%(paths)s
                command="$command $word" ;;
        esac
    done
    current="$word"
    [ "$number" -gt "$COMP_CWORD" ] || current=""
    case "$command" in
%(words)s
    esac
    case "$command $previous" in
%(values)s
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _kproto kproto
"""


def add(commands: Subparsers) -> None:
    completion = commands.add_parser(
        "completion",
        help="print the script that completes commands in bash and zsh",
        description="Print the script that completes commands, options and their values in bash and zsh. Add "
        'the line eval "$(kproto completion)" to ~/.bashrc or ~/.zshrc.',
    )
    completion.set_defaults(run=_print_completion)


def _print_completion(options: argparse.Namespace) -> int:
    parser, _ = options.build_parser()
    print(script(parser), end="")
    return 0


def script(parser: Parser) -> str:
    """Return the script for this parser and its subparsers."""
    parsers = dict(_walk_parsers("", parser))
    words_by_path = {path: " ".join(_next_words(command)) for path, command in parsers.items()}
    # "COMMAND OPTION" -> the values of the option, which are completed after it.
    values_by_option = {
        f"{path} {option}": " ".join(map(str, action.choices or ()))
        for path, command in parsers.items()
        for action in command.actions()
        if action.nargs != 0
        for option in action.option_strings
    }
    # Options that have the same values in many commands share a line of the script.
    options_by_values: dict[str, list[str]] = {}
    for option, values in values_by_option.items():
        options_by_values.setdefault(values, []).append(quote(option))
    return _SCRIPT % {
        "paths": "            " + "|".join(quote(path) for path in parsers if path) + ")",
        "words": "\n".join(
            f"        {quote(path)}) words={quote(words)} ;;" for path, words in words_by_path.items()
        ),
        "values": "\n".join(
            f"        {'|'.join(options)}) words={quote(values)} ;;"
            for values, options in options_by_values.items()
        ),
    }


def _walk_parsers(path: str, parser: Parser) -> Iterator[tuple[str, Parser]]:
    """Yield a parser and all of its subparsers, each with the words that select it, as in " topics list"."""
    yield path, parser
    for name, child in parser.subparsers().items():
        yield from _walk_parsers(f"{path} {name}", child)


def _next_words(parser: Parser) -> Iterator[str]:
    """Yield the words that may follow a command: its verbs, and then its options.

    If the command has no verbs, yield the allowed values of its positional arguments instead of verbs.
    """
    yield from parser.subparsers()
    for action in parser.actions():
        if action.choices and not action.option_strings and not parser.subparsers():
            yield from map(str, action.choices)
        yield from (option for option in action.option_strings if option.startswith("--"))
