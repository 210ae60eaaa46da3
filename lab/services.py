"""Services of the outside network: a web server, a DNS server, and an iperf3 server."""

import hashlib
import os

NAME = "www.example.test"

NGINX = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ }}
http {{
    access_log off;
    sendfile on;
    client_max_body_size 0;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    default_type application/octet-stream;
    server {{
        listen 80;
        listen [::]:80;
        root {folder}/files;
        location = /whoami {{ return 200 "$remote_addr $remote_port\\n"; }}
    }}
}}
"""


class Services:
    """The server programs, which are ready when the constructor returns."""

    def __init__(self, server, megabytes=8):
        self.folder = os.path.join(server.folder, "web")
        os.makedirs(os.path.join(self.folder, "files"))
        content = os.urandom(megabytes << 20)
        self.digest = hashlib.sha256(content).hexdigest()
        with open(os.path.join(self.folder, "files", "download.bin"), "wb") as file:
            file.write(content)
        configuration = os.path.join(self.folder, "nginx.conf")
        with open(configuration, "w", encoding="ascii") as file:
            file.write(NGINX.format(folder=self.folder))
        self.nginx = server.spawn("nginx", "-e", "stderr", "-c", configuration)
        self.dns = server.spawn(
            "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root",
            "--pid-file", "--log-facility=-", f"--host-record={NAME},{server.address},{server.address6}",
            "--txt-record=long.example.test," + ",".join(["x" * 250] * 4), "--edns-packet-max=4096",
        )
        self.iperf = server.spawn("iperf3", "--server", "--port", "5201", "--forceflush")
        server.wait_listening(80)
        server.wait_listening(53)
        server.wait_listening(53, "udp")
        server.wait_listening(5201)
