"""Templates that render to much more than they are."""


def doubled(times: int, text: str) -> str:
    """Return a template that writes ``text`` 2 ** (times - 1) times, by definitions of
    definitions."""
    defines = [f'<<define "a">>{text}<<end>>']
    for i in range(1, times):
        name, last = chr(97 + i), f'<<template "{chr(96 + i)}">>'
        defines.append(f'<<define "{name}">>{last}{last}<<end>>')
    return "".join(defines) + f'<<template "{chr(96 + times)}">>'
