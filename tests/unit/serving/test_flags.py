"""pflag's notation, the API server's table, and what makes its flags invalid."""

import pytest

from podscale.serving.flag_table import API_SERVER, problems
from podscale.serving.flags import Flag, FlagError, parse, usage, wrong_values

TABLE = (
    Flag("name"),
    Flag("count", "int", 3),
    Flag("wide", "bool", False),
    Flag("wait", "duration", 10.0),
    Flag("list", "strings", ("a",)),
    Flag("header", "array", ()),
    Flag("v", "int", 0, shorthand="v"),
    Flag("old", "bool", False, ignored="it is from another time"),
    Flag("older-*", "any", ignored="nobody remembers"),
)


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--name=x=y"], "name", "x=y"),
        (["--name", "x"], "name", "x"),
        (["--name="], "name", ""),
        (["--count", "-1"], "count", -1),
        (["--wide"], "wide", True),
        (["--wide=F"], "wide", False),
        (["--wait=1m30s"], "wait", 90.0),
        (["--wait", "0"], "wait", 0.0),
        (["--list=b,c", "--list", "d"], "list", ("b", "c", "d")),
        (['--list="x,y",z'], "list", ("x,y", "z")),
        (["--header=a=1,2", "--header", "b"], "header", ("a=1,2", "b")),
        (["-v=4"], "v", 4),
        (["-v4"], "v", 4),
        (["-v", "4"], "v", 4),
        (["--v=4"], "v", 4),
        ([], "list", ("a",)),
    ],
)
def test_values(argv: list[str], name: str, value: object) -> None:
    assert parse(argv, TABLE).values[name] == value


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--nme=x"], "unknown flag: --nme (did you mean --name?)"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["--name"], "flag needs an argument: --name"),
        (
            ["--count=x"],
            'invalid argument "x" for "--count" flag: not a whole number',
        ),
        (
            ["--wide=maybe"],
            'invalid argument "maybe" for "--wide" flag: neither true nor false',
        ),
    ],
)
def test_errors_are_pflags_with_the_reason_in_plain_words(argv: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse(argv, TABLE)
    assert str(caught.value) == message


def test_a_second_value_is_refused_where_it_would_count_alone() -> None:
    table = [Flag("url", instead="name it in a file")]
    assert parse(["--url=a", "--url=a"], table).text("url") == "a"
    with pytest.raises(FlagError, match="--url is given twice, with different values: name it in"):
        parse(["--url=a", "--url=b"], table)


def test_a_bool_does_not_eat_the_next_word() -> None:
    flags = parse(["--wide", "true", "--", "--name=x"], TABLE)
    assert flags.arguments == ("true", "--name=x")
    assert flags.given == {"wide"}


def test_flags_without_effect_warn_once_and_only_when_given() -> None:
    assert parse([], TABLE).warnings == ()
    assert parse(["--old"], TABLE).warnings == ("--old changes nothing: it is from another time",)


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        (["--older-one", "--wide"], ()),
        (["--older-one=x", "--wide"], ()),
        (["--older_one", "x", "--wide"], ()),
        (["--older-one", "-", "--wide"], ()),
        (["--wide", "rest", "--older-one"], ("rest",)),
    ],
)
def test_a_row_with_a_star_takes_all_that_begin_so_with_a_value_or_none(argv, arguments) -> None:
    flags = parse(argv, TABLE)
    assert (flags.switch("wide"), flags.arguments) == (True, arguments)
    assert flags.warnings == ("--older-one changes nothing: nobody remembers",)


@pytest.mark.parametrize("name", ["usage-window", "usage_window", "nodes.usage-window"])
def test_a_flag_that_is_gone_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse([f"--{name}=1m"], TABLE)
    assert str(caught.value) == f"--{name} is gone, leave it out: usage is averaged over 5m"


# Lists seen in manifests and charts (adapter.md 6.2), with the API server's part of them.
@pytest.mark.parametrize(
    "argv",
    [
        ["--secure-port=6443", "--cert-dir=/var/run/serving-cert", "--v=4", "--logtostderr=true"],
        [
            (
                "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,"
                "TLS_RSA_WITH_AES_256_CBC_SHA"
            )
        ],
        ["--tls-min-version=VersionTLS10"],
        ["--tls-min-version=VersionTLS11", "--tls-cipher-suites=TLS_AES_128_GCM_SHA256"],
        ["--audit-policy-file=/etc/p.yaml", "--audit-log-path=-", "--audit-log-format=json"],
        ["--requestheader-allowed-names=kube-apiserver-proxy,system:auth-proxy"],
        ["--authorization_always_allow_paths=/metrics"],
    ],
)
def test_command_lines_of_manifests_are_valid(argv: list[str]) -> None:
    assert problems(parse(argv, API_SERVER)) == []


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["--secure-port=-1"], "--secure-port"),
        (["--secure-port=65536"], "--secure-port"),
        (["--secure-port=6443", '--requestheader-username-headers=" "'], "header name"),
        (["--audit-log-path=file", "--audit-log-format=txt"], "txt"),
        (["--tls-cert-file=x"], "--tls-private-key-file"),
        (["--tls-min-version=VersionTLS9"], "VersionTLS9"),
        (["--tls-cipher-suites=TLS_NO_SUCH"], "TLS_NO_SUCH"),
        (["--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA"], "no cipher suite is left"),
        (["--log-format=xml"], "--log-format"),
        (["--max-requests-inflight=0"], "--max-requests-inflight"),
    ],
)
def test_invalid_values_are_told_all_at_once(argv: list[str], word: str) -> None:
    found = problems(parse(argv, API_SERVER))
    assert len(found) == 1
    assert word in found[0]
    both = problems(parse([*argv, "--request-timeout=0s"], API_SERVER))
    assert len(both) == 2


def test_what_a_value_must_be_stands_with_its_flag() -> None:
    table = (
        Flag("source", choices=("feed", "api")),
        Flag("period", "duration", 1.0, must_be="greater than 0"),
        Flag("share", "float", 1.0, must_be="above 0 and at most 1"),
    )
    assert wrong_values(parse([], table), table) == []
    found = wrong_values(parse(["--source=fed", "--period=0s", "--share=1.1"], table), table)
    assert found == [
        "--source must be one of feed, api",
        "--period must be greater than 0",
        "--share must be above 0 and at most 1",
    ]


def test_every_flag_of_the_table_is_named_once_and_shown() -> None:
    names = [flag.name for flag in API_SERVER]
    assert len(names) == len(set(names))
    text = usage(API_SERVER)
    assert all(f"--{name}" in text for name in names)
    for flag in API_SERVER:
        assert flag.help or flag.ignored, flag.name
