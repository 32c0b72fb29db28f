"""Texts that look like credentials. A credential is named by its kind; its value is never shown.

The forms are those of detect-secrets, whose maintainers keep them up to date, and those of services that training
programs use and detect-secrets does not know. Nothing is verified over the network. It needs detect-secrets, which is
in the extras of all who judge changes.
"""

import base64
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise

from detect_secrets.plugins.artifactory import ArtifactoryDetector
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.basic_auth import BasicAuthDetector
from detect_secrets.plugins.cloudant import CloudantDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.high_entropy_strings import Base64HighEntropyString
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.npm import NpmDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.private_key import PrivateKeyDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.softlayer import SoftlayerDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

from everspot_clouds.credential_names import is_name, is_named_secret, is_placeholder, is_reference

PASSWORD = "a password"  # noqa: S105 - the name of a kind
RANDOM = "a random key"
_COMMAND, _GIVEN_AS_OPTION = "a password in a command", "a password in an option"
_ELEMENT, _USER = "a password in XML", "a token in an address"

_DETECTORS: tuple[tuple[str, RegexBasedDetector], ...] = (
    ("an AWS access key", AWSKeyDetector()),
    ("a private key", PrivateKeyDetector()),
    ("a GitHub token", GitHubTokenDetector()),
    ("a GitLab token", GitLabTokenDetector()),
    ("a Slack token", SlackDetector()),
    ("an API key of a model", OpenAIDetector()),
    ("a Stripe key", StripeDetector()),
    ("a JSON Web Token", JwtTokenDetector()),
    ("a password in an address", BasicAuthDetector()),
    ("an Azure storage key", AzureStorageKeyDetector()),
    ("an Artifactory key", ArtifactoryDetector()),
    ("a Cloudant password", CloudantDetector()),
    ("a Discord token", DiscordBotTokenDetector()),
    ("a Mailchimp key", MailchimpDetector()),
    ("an npm token", NpmDetector()),
    ("a PyPI token", PypiTokenDetector()),
    ("a SendGrid key", SendGridDetector()),
    ("a SoftLayer password", SoftlayerDetector()),
    ("a Square secret", SquareOAuthDetector()),
    ("a Telegram token", TelegramBotTokenDetector()),
    ("a Twilio key", TwilioKeyDetector()),
)
"""All that know the form of one service's credentials. Left out: public addresses, which are no credentials, and the
detectors of IBM that take any `key: value` for one."""

_GENERAL = (_USER, "a password in an address", "a bearer token", _COMMAND, _GIVEN_AS_OPTION, _ELEMENT, PASSWORD, RANDOM)
_NAMELIKE = (_GIVEN_AS_OPTION, _ELEMENT, _USER)
"""Kinds whose matches are ignored if they consist of words and separators, because such a value is a name."""

_LITERAL = (PASSWORD, _COMMAND, _GIVEN_AS_OPTION, _ELEMENT)
_EXAMPLES = ("password", "passwd", "pass", "pass1", "pass123", "password1", "secret", "token", "pw", "mypassword")
"""Values with which manuals show where a password goes."""
_WHOLE = ("a GitHub token", "a GitLab token")  # a group of theirs is only how the token begins
_BORDERED = ("an AWS access key", "a Twilio key", "a Mailchimp key", "a Telegram token")

_BASIC = ("a password in a header", "a Docker password")  # the base64 of `user:password`

_QUOTED = r"(?:\"(?![$<{`])[^\"\n]{1,100}\"|'(?![$<{`])[^'\n]{1,100}')"
"""A literal text in quotes."""

_OPTION = r"['\"]?--?"
_GAP = r"['\"]?(?:=|\s*,\s*|\s+)['\"]?"
"""The characters between an option and its value, in a shell or in a program's list of arguments."""

_GAP_OR_NONE = rf"(?:{_GAP}|['\"]?)"
_ELEMENT_NAMES = r"(?:password|passwd|passphrase|secret|token|api-?key)"

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "an AWS secret key",
        re.compile(
            r"(?i)aws_?secret_?(?:access_?)?key['\"]?\s*[:=]\s*['\"]?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
        ),
    ),
    (
        "a private key",
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[\s\S]*?-----END (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|[\s\S]*)"
        ),
    ),
    ("a Google API key", re.compile(r"(?<![A-Za-z0-9_-])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])")),
    ("a Google client secret", re.compile(r"(?<![A-Za-z0-9_-])GOCSPX-[A-Za-z0-9_-]{28}")),
    ("a Google refresh token", re.compile(r"(?<![A-Za-z0-9_./-])(?:1//0[A-Za-z0-9_-]{60,}|ya29\.[A-Za-z0-9_-]{40,})")),
    ("a GitHub token", re.compile(r"(?<![A-Za-z0-9_])github_pat_[A-Za-z0-9_]{40,100}")),
    ("a Slack token", re.compile(r"(?<![A-Za-z0-9])xox[abeprs]-[A-Za-z0-9-]{10,100}")),
    ("a Stripe key", re.compile(r"(?<![A-Za-z0-9])(?:[rs]k|whsec)_(?:live_|test_)?[A-Za-z0-9]{24,100}")),
    ("an API key of a model", re.compile(r"(?<![A-Za-z0-9-])sk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,200}")),
    (
        "a Hugging Face token",
        re.compile(
            r"(?<![A-Za-z0-9_])(?:hf_[A-Za-z0-9]{34}(?![A-Za-z0-9])|api_org_[A-Za-z]{34})"
            r"|(?:huggingface-cli|\bhf auth) login(?: +--?[a-z][^\s]{0,60}){0,5} +--token(?: +|=)['\"]?"
            r"([A-Za-z0-9_-]{8,100})"
        ),
    ),
    (
        "a Weights & Biases API key",
        re.compile(
            r"\bwandb login(?: +--?[a-z][^\s]{0,100}){0,5} +['\"]?((?:local-)?[0-9a-f]{40})(?![0-9a-f])"
            r"|(?i:wandb_?api_?key)['\"]?\s*[:=]\s*['\"]?((?:local-)?[0-9a-f]{40})(?![0-9a-f])"
        ),
    ),
    ("a Pulumi token", re.compile(r"(?<![A-Za-z0-9-])pul-[0-9a-f]{40}")),
    ("a Vault token", re.compile(r"(?<![A-Za-z0-9.])hv[sbr]\.[A-Za-z0-9_-]{24,}")),
    ("a Terraform token", re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}")),
    ("a Databricks token", re.compile(r"(?<![A-Za-z0-9])dapi[0-9a-f]{32}(?![A-Za-z0-9])")),
    ("a DigitalOcean token", re.compile(r"(?<![A-Za-z0-9])do[opr]_v1_[0-9a-f]{64}")),
    ("a Replicate token", re.compile(r"(?<![A-Za-z0-9_])r8_[A-Za-z0-9]{37}(?![A-Za-z0-9])")),
    ("an age key", re.compile(r"AGE-SECRET-KEY-1[0-9A-Z]{58}")),
    ("a Slack token", re.compile(r"(?<![A-Za-z0-9])xapp-[0-9]-[A-Z0-9]{8,20}-[0-9]{8,20}-[a-f0-9]{40,100}")),
    (
        "a Weights & Biases API key",
        re.compile(
            r"(?<![A-Za-z0-9_])wandb_v1_[A-Za-z0-9_]{60,100}|\bwandb\.login\([^()\n]{0,80}?\bkey *= *['\"]"
            r"((?:local-)?[0-9a-f]{40})['\"]"
        ),
    ),
    ("an npm token", re.compile(r"(?<![A-Za-z0-9_])npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])")),
    (
        "an API key of a model",
        re.compile(
            r"(?<![A-Za-z0-9_-])(?:nvapi-[A-Za-z0-9_-]{60,70}|gsk_[A-Za-z0-9]{52}|xai-[A-Za-z0-9]{70,90})(?![A-Za-z0-9_-])"
        ),
    ),
    ("a Docker token", re.compile(r"(?<![A-Za-z0-9_])dckr_[po]at_[A-Za-z0-9_-]{27}")),
    ("a Docker password", re.compile(r"\"auth\"\s*:\s*\"([A-Za-z0-9+/]{8,}={0,2})\"")),
    (
        "a Grafana token",
        re.compile(r"(?<![A-Za-z0-9_])gl(?:sa_[A-Za-z0-9]{32}_[0-9a-f]{8}|c_[A-Za-z0-9+/]{40,}={0,2})"),
    ),
    ("a Shopify token", re.compile(r"(?<![A-Za-z0-9_])shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}")),
    ("a Linear key", re.compile(r"(?<![A-Za-z0-9_])lin_(?:api|oauth)_[A-Za-z0-9]{32,64}")),
    (
        "a Notion token",
        re.compile(r"(?<![A-Za-z0-9_])(?:secret_[A-Za-z0-9]{43}|ntn_[A-Za-z0-9]{40,50})(?![A-Za-z0-9])"),
    ),
    ("a Postman key", re.compile(r"(?<![A-Za-z0-9-])PMAK-[0-9a-f]{24}-[0-9a-f]{34}")),
    ("a New Relic key", re.compile(r"(?<![A-Za-z0-9-])NRAK-[A-Z0-9]{27}(?![A-Z0-9])")),
    (
        "a Tailscale key",
        re.compile(r"(?<![A-Za-z0-9-])tskey-(?:auth|api|client|scim|webhook)-[A-Za-z0-9]{8,20}-[A-Za-z0-9]{20,40}"),
    ),
    ("a Heroku key", re.compile(r"(?<![A-Za-z0-9-])HRKU-[A-Za-z0-9_-]{36,64}")),
    ("a Mailgun key", re.compile(r"(?<![A-Za-z0-9-])key-[0-9a-f]{32}(?![0-9a-f])")),
    (
        "a Teams webhook",
        re.compile(r"outlook\.office(?:365)?\.com/webhook(?:b2)?/[0-9a-f@-]{36,80}/IncomingWebhook/[0-9a-f]{32}"),
    ),
    ("a signature of an Azure address", re.compile(r"[?&;]sig=([A-Za-z0-9%+/]{40,80}(?:=|%3[Dd])*)")),
    ("a password in a header", re.compile(r"(?<=[Bb]asic )([A-Za-z0-9+/]{16,200}={0,2})(?![A-Za-z0-9+/])")),
    (
        PASSWORD,
        re.compile(
            r"(?i)[?&](?:api_?key|key|token|access_token|password|secret)=((?![$<{%])(?=[^\s&]*[0-9])[^\s&\"'#]{8,200})"
        ),
    ),
    (
        _GIVEN_AS_OPTION,
        re.compile(
            rf"(?i)(?<![\w-]){_OPTION}(?:password|passwd|token|api-?key|access-?key|secret){_GAP}"
            r"((?![-$<{%]|\d+\b)(?=[^\s'\"]*[0-9])[^\s'\"=,()]{6,100}=*)(?=[\s'\"]|$)"
        ),
    ),
    (
        _COMMAND,
        re.compile(
            rf"(?i)\bcurl\b(?:(?:(?!&&)[^\n|;]){{0,200}}?[\s'\"])?(?:-u|--user){_GAP_OR_NONE}[\w.@+-]{{1,60}}:((?![$<{{%])[^\s'\"]{{3,100}})"
            rf"|\bsshpass\b['\",\s]+-p{_GAP_OR_NONE}((?![$<{{%])[^\s'\"]{{3,100}})"
            rf"|\bdocker\b['\",\s]+login\b[^\n|;]{{0,100}}?[\s'\"]-p{_GAP_OR_NONE}((?![$<{{%])[^\s'\"]{{3,100}})"
            r"|\bmysql(?:dump|admin)?\b(?:[^\n|;]{0,100}?[\s'\"])?(?-i:-p)((?![$<{%]|ort|rotocol|\d+\b)[^\s'\",]{3,100})"
        ),
    ),
    (_COMMAND, re.compile(r"\bmachine\s+\S+(?:\s+(?:login|account)\s+\S+){0,2}\s+password\s+((?![$<{%])\S{3,100})")),
    (
        _ELEMENT,
        re.compile(
            rf"(?i)<((?:\w+[:._-])?\w{{0,40}}?{_ELEMENT_NAMES})(?:\s[^<>]{{0,200}})?>\s*((?![{{%])[^\s<>&$]{{4,200}})\s*</\1>"
        ),
    ),
    (
        _ELEMENT,
        re.compile(rf"(?i)\b(?:key|name)=\"([\w.:-]{{0,40}}?{_ELEMENT_NAMES})\"\s+value=\"([^\"\s<>&{{$]{{4,200}})\""),
    ),
    (
        "a password in a connection string",
        re.compile(
            r"(?i)\b(?:server|host|data source|user(?: id|name)?|uid)=[^;\"'\n]{1,100};(?:[^\"'\n]{0,200};)?\s*"
            r"(?:password|pwd)=([^;\"'\s$<{(]{3,100})"
        ),
    ),
    (_USER, re.compile(r"://((?=[\w.~+-]*[0-9])[\w.~+-]{16,255})@(?![^/\s]*\bsentry\b)[\w.\[-]")),
    ("a Discord webhook", re.compile(r"discord(?:app)?\.com/api/webhooks/[0-9]{15,22}/[A-Za-z0-9_-]{50,}")),
    ("a bearer token", re.compile(r"(?<=[Bb]earer )(?![$<{])([A-Za-z0-9.~+/_-]{16,}=*)")),
    ("a password in an address", re.compile(r"://[^/\s:@\"'<>{}$]{0,100}:([^/\s@\"'<>{}]{1,200})@[\w.\[-]")),
    (
        "a database's password",
        re.compile(
            r"(?<![A-Za-z0-9_])(?:PGPASSWORD|MYSQL_PWD)(?:"
            rf"=({_QUOTED}|(?![$<{{`\"'])(?=\S*[A-Za-z0-9])\S+)"
            rf"|['\"]?\s*:\s*({_QUOTED}|(?![$<{{`\"'])(?=\S*\d)\S+))"
        ),
    ),
    (
        PASSWORD,
        re.compile(
            r"(?im)(?:^|[\s;&_\"'{,-])(?:(?:password|passwd|api_?key)['\"]?\s*[:=]\s*"
            r"(?:\"((?![$<{])[^\"\s]{6,100})\"|'((?![$<{])[^'\s]{6,100})')"
            r"|(?:secret|token)['\"]?\s*[:=]\s*"
            r"(?:\"((?![$<{])(?=[^\"]*\d)[^\"\s]{6,100})\"|'((?![$<{])(?=[^']*\d)[^'\s]{6,100})')"
            r"|(?:password|passwd|secret|token|api_?key)['\"]?\s*[:=]\s*"
            r"((?![$<{\"'(\[])(?=[^\s,;]*\d)[^\s,;\"'}]{6,100}))"
        ),
    ),
)
"""Patterns beside detect-secrets' own. Only literal passwords match; `$TOKEN`, `${TOKEN}` and `<token>` do not. A group
of the pattern is the credential within its text."""

KINDS = tuple(dict.fromkeys([*(kind for kind, _ in (*_DETECTORS, *_PATTERNS)), RANDOM]))
"""The kinds of credentials that are detected."""

LONGEST = 1 << 20
"""Characters that are looked at. Clouds take far less (16 KiB of user data, 256 KiB of a metadata value)."""

_LONGEST_LINE = 20_000  # characters that one detector gets: its patterns are not linear
_PACKED = re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{40,}\s+)*[A-Za-z0-9+/]{20,}={0,2}")
_LAYERS, _PIECES = 2, 100
"""How deep, and how many pieces of a text, are unpacked: a file of a cloud-config is one layer."""

_UNSEEN = (
    r"[\x00-\x08\x0e-\x1b\x7f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
"""Control characters, and characters that renderers may ignore (Unicode, `Default_Ignorable_Code_Point`)."""

_UNSEEN_WRITTEN = (
    r"\\{1,2}(?:[xX](?:[01][0-9a-fA-F]|7f|ad)"
    r"|u(?:00ad|034f|061c|180e|20[026][0-9a-fA-F]|fe0[0-9a-fA-F]|feff|(?i:db4[0-3]\\{1,2}ud[c-f][0-9a-f]{2}))"
    r"|U000[eE]0[0-9a-fA-F]{3})"
)
"""The same as YAML, JSON and Python write them."""

_GAPS = re.compile(rf"(?:{_UNSEEN}|{_UNSEEN_WRITTEN})+")
_SHORTEST_BEGINNING = 8
"""Characters of a credential's beginning that are struck where the rest was cut off."""

_WORD = re.compile(r"[A-Za-z0-9+/_-]{32,200}={0,2}")
_ENTROPY = Base64HighEntropyString()
_CHANGES = 0.35
"""Least share of neighbouring characters that differ in class (upper, lower, digit, sign): of random keys it is 0.6, of
words and paths in mixed case at most 0.25."""


@dataclass(frozen=True)
class Credential:
    """A text that looks like a credential.

    Attributes:
        kind: One of `KINDS`.
        value: The text. It is for comparison only.
    """

    kind: str
    value: str = field(repr=False)


def credentials_in(text: str) -> list[Credential]:
    """Return the parts of a text that look like a credential by their form, also packed as base64 within it, as a
    cloud-config has files (`encoding: b64` and `gz+b64`)."""
    texts = dict.fromkeys((text[:LONGEST], without_unseen(text[:LONGEST])))
    matches = [match for each in texts for layer in _layers(each, _LAYERS) for match in _by_form(layer)]
    return list(dict.fromkeys(matches))


def without_unseen(text: str) -> str:
    """Return a text without invisible characters, which would hide a credential."""
    return _GAPS.sub("", text)


def redact(text: str, values: Iterable[str], mark: str) -> str:
    """Return a text with a mark in place of each of these credentials, also if unseen characters are within one, or if
    only its beginning was kept."""
    for value in sorted(dict.fromkeys(map(without_unseen, values)), key=len, reverse=True):
        text = _redact(text, value, mark) if len(value) >= 3 else text
    return text


def _redact(text: str, value: str, mark: str) -> str:
    parts, done = [], 0
    for start in _starts(text, value):
        if start < done:
            continue
        matched, end = 0, start
        while matched < len(value) and end < len(text):
            if text[end] == value[matched]:
                matched, end = matched + 1, end + 1
            elif gap := _GAPS.match(text, end):
                end = gap.end()
            else:
                break
        if matched >= min(len(value), _SHORTEST_BEGINNING):
            parts += [text[done:start], mark]
            done = end
    return "".join([*parts, text[done:]])


def _starts(text: str, value: str) -> Iterator[int]:
    """Yield where a text could begin: each place of its first character."""
    start = text.find(value[0])
    while start >= 0:
        yield start
        start = text.find(value[0], start + 1)


def credentials_under(name: str, value: str) -> list[Credential]:
    """Return the parts of a value that look like a credential by their form, by the value's name, or because they are
    random. `name`: the key of the value, or the name beside it."""
    matches = credentials_in(value)
    name, value = without_unseen(name), without_unseen(value)
    if not matches and is_named_secret(name, value):
        matches = [Credential(PASSWORD, value)]
    if not matches and not _is_digest(name):
        matches = [Credential(RANDOM, token) for token in _words(value) if _is_random(token)]
    return matches


def list_kinds(credentials: Iterable[Credential]) -> list[str]:
    """Return the kinds of credentials, each once. A general kind is left out beside one that says more."""
    kinds = list(dict.fromkeys(credential.kind for credential in credentials))
    return [kind for kind in kinds if kind not in _GENERAL] or kinds[:1]


def kinds_in(text: str) -> list[str]:
    """Return the kinds of credentials that a text seems to hold."""
    return list_kinds(credentials_in(text))


def _by_form(text: str) -> Iterator[Credential]:
    for line in text.splitlines():
        for kind, detector in _DETECTORS:
            for match in chain.from_iterable(form.finditer(line[:_LONGEST_LINE]) for form in detector.denylist):
                groups = () if kind in _WHOLE else match.groups()
                value = next((group for group in groups if group), match[0])
                if _counts(kind, value, match):
                    yield Credential(kind, value)
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            groups = match.groups()[1:] if kind == _ELEMENT else match.groups()
            value = next((group for group in groups if group), match[0])
            if (kind in _BASIC and not _is_basic(value)) or (kind in _NAMELIKE and is_name(value)):
                continue
            if kind in _LITERAL and (is_reference(value) or (kind != PASSWORD and value.lower() in _EXAMPLES)):
                continue
            if not is_placeholder(value.strip("\"'")):
                yield Credential(kind, value)


def _is_basic(value: str) -> bool:
    """Return whether a text is the base64 of `user:password`."""
    try:
        user, colon, password = unpacked(value).decode("ascii").partition(":")
    except (ValueError, zlib.error):
        return False
    return bool(user.isprintable() and colon and len(password) >= 3 and password.isprintable())


def _counts(kind: str, value: str, match: re.Match[str]) -> bool:
    """Return whether a detector's finding is a credential: some of its patterns have no borders, and match within
    longer words."""
    if kind == "a private key":
        return True
    if is_placeholder(value) or (kind == "a JSON Web Token" and not JwtTokenDetector.is_formally_valid(value)):
        return False
    around = match.string[max(0, match.start() - 1) : match.start()] + match.string[match.end() : match.end() + 1]
    if kind in _BORDERED and any(letter.isalnum() for letter in around):
        return False
    return kind not in ("an Artifactory key", "a Twilio key") or any(letter.isdigit() for letter in value)


def _layers(text: str, deep: int) -> Iterator[str]:
    """Yield a text, and the texts that are packed in it."""
    yield text
    for piece in islice(_PACKED.finditer(text), _PIECES if deep else 0):
        try:
            inner = unpacked(piece[0]).decode()
        except (ValueError, zlib.error):
            continue
        yield from _layers(inner, deep - 1)


def unpacked(text: str) -> bytes:
    """Return the content of a base64 text, also in lines, and without compression if there is any.

    Raises:
        ValueError: if it is no base64.
        zlib.error: if the compressed content cannot be read.
    """
    decoded = base64.b64decode("".join(text.split()), validate=True)
    return zlib.decompressobj(wbits=31).decompress(decoded, LONGEST) if decoded[:2] == b"\x1f\x8b" else decoded


_DIGEST = re.compile(
    r"(?:hash|sha\d*|digest|checksum|fingerprint|thumbprint|etag|md5|integrity|public_?key|certificate|id|arn)s?$", re.I
)
_PUBLIC = re.compile(
    r"-----BEGIN (?:CERTIFICATE|PUBLIC KEY)|\b(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\S+) AAAA|sha\d+[-:]"
)


def _is_digest(name: str) -> bool:
    return _DIGEST.search(name.replace("-", "_")) is not None


def _words(value: str) -> list[str]:
    """Return the words of a value that could be random keys; none where there are public keys or digests."""
    if len(value) > _LONGEST_LINE or _PUBLIC.search(value):
        return []
    return [token for token in re.split(r"[\s\"',;:=]+", value) if _WORD.fullmatch(token)]


def _is_random(token: str) -> bool:
    """Return whether a word is as random as detect-secrets wants base64 to be, and no path or name in mixed case."""
    if _is_packed_text(token):
        return False
    classes = [(c.isupper(), c.islower(), c.isdigit()) for c in token]
    changes = sum(kinds != other for kinds, other in pairwise(classes))
    mixed = all(any(kinds[kind] for kinds in classes) for kind in range(3))
    return (
        mixed
        and changes >= _CHANGES * len(token)
        and _ENTROPY.calculate_shannon_entropy(token) > _ENTROPY.entropy_limit
    )


def _is_packed_text(token: str) -> bool:
    """Return whether a word is the base64 of a text, which has been looked at itself."""
    try:
        return unpacked(token + "=" * (-len(token) % 4)).decode("ascii").isprintable()
    except (ValueError, zlib.error):
        return False
