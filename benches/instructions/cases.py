"""What is counted: one case for each way that a request takes, with the configuration and the request of each."""

from dataclasses import dataclass
from pathlib import Path

HUGE = "10000000/s"  # never refuses what is sent here
TINY = "1/h"  # refuses all but the first
CERTIFICATE, KEY = "cert.pem", "key.pem"  # beside the file, where a case has TLS
# Nobody has signed it.
FORGED = f"Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.{'A' * 342}\r\n"
ISSUER = Path(__file__).resolve().parents[2] / "tests/config/jwt/rsa.pem"
KEYS = (("key", '"header:x-api-key"\nmissing = "skip"'), ("ip", '"ip"'), ("route", '"route"'))


@dataclass(frozen=True)
class Case:
    """One way of a request through one proxy."""

    name: str
    proxy: str = "tollgate"
    limits: int = 0
    rate: str = HUGE
    redis: bool = False
    log: bool = False
    http2: bool = False
    http2_servers: bool = False
    balanced: bool = False
    tls: bool = False
    by_token: bool = False  # a route asks for members of a group by their tokens
    fields: str = ""  # more of them, over HTTP/1.1
    path: str = "/"

    @property
    def status(self):
        return 200 if self.rate == HUGE else 429

    @property
    def is_ours(self):
        return self.proxy == "tollgate"


CASES = (
    Case("plain"),
    Case("memory limit", limits=1),
    Case("three memory limits", limits=3),
    Case("refusal", limits=1, rate=TINY),
    Case("refusal before tokens", limits=1, rate=TINY, by_token=True),
    Case("refusal, forged token", limits=1, rate=TINY, by_token=True, fields=FORGED),
    Case("redis limit", limits=1, redis=True),
    Case("three redis limits", limits=3, redis=True),
    Case("access log", log=True),
    Case("h2c", http2=True),
    Case("h2c to servers", http2_servers=True),
    Case("h2c both ways", http2=True, http2_servers=True),
    Case("five servers", balanced=True),
    Case("nginx", proxy="nginx"),
    Case("nginx with our fields", proxy="nginx", path="/full"),
    Case("nginx limit_req", proxy="nginx", rate=TINY, path="/refused"),
    Case("nginx h2c", proxy="nginx", http2=True),
    Case("haproxy", proxy="haproxy"),
    Case("haproxy h2c", proxy="haproxy", http2=True),
    Case("haproxy h2c to servers", proxy="haproxy", http2_servers=True),
    Case("haproxy h2c both ways", proxy="haproxy", http2=True, http2_servers=True),
    Case("haproxy five servers", proxy="haproxy", balanced=True),
)


def configuration(case, port, upstreams, redis):
    """The text of the proxy's file, in front of one of the ports of `upstreams`, or of all."""
    text = {"tollgate": tollgate, "nginx": nginx, "haproxy": haproxy}[case.proxy]
    return text(case, port, upstreams if case.balanced else upstreams[:1], redis)


def command(case, file, binary):
    """How the proxy is started with that file."""
    return {
        "tollgate": [str(binary), "run", "--config", str(file)],
        # -e: without it nginx first opens the log of the system's nginx.
        "nginx": ["nginx", "-e", "stderr", "-c", str(file)],
        "haproxy": ["haproxy", "-db", "-f", str(file)],
    }[case.proxy]


def file_name(case):
    return {"tollgate": "gateway.toml", "nginx": "nginx.conf", "haproxy": "haproxy.cfg"}[case.proxy]


def tollgate(case, port, upstreams, redis):
    names = ", ".join(f'"{name}"' for name, _ in KEYS[: case.limits])
    store = f'[store]\nurl = "redis://127.0.0.1:{redis}/0"\ntimeout = "20s"\n' if case.redis else ""
    lease = 'lease = "off"\n' if case.redis else ""
    limits = "".join(
        f'[limits.{name}]\nby = {by}\nrate = "{case.rate}"\n{lease}' for name, by in KEYS[: case.limits]
    )
    access = "json" if case.log else "off"
    listener = f'{{ address = "127.0.0.1:{port}", tls = true }}' if case.tls else f'"127.0.0.1:{port}"'
    scheme = "h2c" if case.http2_servers else "http"
    servers = ", ".join(f'"{scheme}://127.0.0.1:{upstream}"' for upstream in upstreams)
    # Ejection and retries are on without a word.
    rules = 'balance = "least-requests"\nhealth = "/healthz"' if case.balanced else ""
    members = f"""[jwt]
keys = "{ISSUER}"
algorithms = "RS256"
[groups.gold]
by = "jwt:plan"
members = "gold"
[routes.members]
path = "/{{*rest}}"
groups = "gold"
upstream = "up"
limits = [{names}]
""" if case.by_token else ""
    identity = f'[tls.own]\ncert = "{CERTIFICATE}"\nkey = "{KEY}"\n' if case.tls else ""
    return f"""[server]
listen = [{listener}]
workers = 1
[log]
access = "{access}"
{identity}{store}{limits}
[upstreams.up]
servers = [{servers}]
{rules}
[routes.all]
path = "/{{*rest}}"
upstream = "up"
limits = [{names}]
{members}"""


def nginx(case, port, upstreams, redis):
    state = Path(".")
    http2 = " http2" if case.http2 else ""
    return f"""worker_processes 1; master_process off; daemon off; pid {state}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 600s;
  upstream up {{ server 127.0.0.1:{upstreams[0]}; keepalive 512; keepalive_requests 100000000; }}
  limit_req_zone $binary_remote_addr zone=tiny:1m rate=1r/m; limit_req_status 429;
  proxy_http_version 1.1; proxy_set_header Connection "";
  server {{
    listen 127.0.0.1:{port} backlog=4096{http2};
    location / {{
      proxy_set_header Connection ""; proxy_set_header X-Forwarded-For $remote_addr; proxy_pass http://up;
    }}
    location /full {{
      proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-Host $host; proxy_set_header Forwarded "for=$remote_addr;host=$host;proto=$scheme";
      proxy_set_header X-Request-Id $request_id; add_header X-Request-Id $request_id; proxy_pass http://up;
    }}
    location /refused {{ limit_req zone=tiny; proxy_pass http://up; }}
  }}
}}
"""


def haproxy(case, port, upstreams, redis):
    proto = " proto h2" if case.http2 else ""
    spoken = " proto h2" if case.http2_servers else ""
    # The same rules: the least loaded, probes each 5 s, failures in a row mark a server down, one retry elsewhere.
    watched = " check inter 5s observe layer7 error-limit 5 on-error mark-down" if case.balanced else ""
    rules = " balance leastconn\n option httpchk GET /healthz\n retries 1\n option redispatch\n" if case.balanced else ""
    servers = "\n".join(f" server up{n} 127.0.0.1:{one}{spoken}{watched}" for n, one in enumerate(upstreams))
    return f"""global
 nbthread 1
 maxconn 4096
defaults
 mode http
 timeout connect 60s
 timeout client 60s
 timeout server 60s
 http-reuse always
frontend front
 bind 127.0.0.1:{port}{proto}
 default_backend back
backend back
 option forwardfor
{rules}{servers}
"""
