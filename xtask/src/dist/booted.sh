#!/bin/bash
# The trial of the package with a real systemd: docs/agent.md, step by step, as a new user would do it. Runs as a service of a bare
# Debian 12 with MariaDB and Prometheus.
#
# In: /trial/reqtrace.deb. Out: on the second serial port a line for each step, `step NAME SECONDS WHAT`, or `failed` with what was
# seen; then the machine is switched off.
set -u
out=/dev/ttyS1
metrics=http://127.0.0.1:9464/metrics
export LC_ALL=C SYSTEMD_COLORS=0 SYSTEMD_PAGER=

finish() {
    sync
    systemctl poweroff --force --force
}
fail() {
    {
        echo "failed $1"
        systemctl status --no-pager --full reqtrace-agent reqtrace-ship prometheus mariadb
        journalctl --no-pager -n 60 -u reqtrace-agent -u reqtrace-ship
        curl -s $metrics | grep -v '^#' | grep -v 'bucket\|part_seconds'
        cat /tmp/seen
    } > $out 2>&1
    finish
    exit 1
}
now() { cut -d ' ' -f 1 /proc/uptime; }
begin() { step=$1 since=$(now); }
# The end of a step, and what came of it.
end() { echo "step $step $(echo "$(now) $since" | awk '{ printf "%.1f", $1 - $2 }') $*" > $out; }
# Waits until a command succeeds, so many seconds at most.
wait_for() {
    local limit=$1 until
    shift
    until=$(($(cut -d . -f 1 /proc/uptime) + limit))
    until "$@" > /tmp/seen 2>&1; do
        [ "$(cut -d . -f 1 /proc/uptime)" -lt $until ] || fail "$step: within $limit s: $*"
        sleep 1
    done
}
must() { "$@" > /tmp/seen 2>&1 || fail "$step: $*"; }

property() { systemctl show --value --property "$1" "${2:-reqtrace-agent}"; }
# A value of the metrics, without its fraction; 0 when it is not there.
value() { curl -s $metrics | awk -v name="$1" 'index($0, name) == 1 { v = $NF } END { printf "%d", v }'; }
at_least() { [ "$(value "$1")" -ge "$2" ]; }
is_traced() { property StatusText | grep -q '^1 of 1 services are traced' && at_least 'reqtrace_traced{service="orders-db"}' 1; }
is_again() { [ "$(property NRestarts)" -gt "$restarts" ] && [ "$(property ActiveState)" = active ] && is_traced; }
worker() { pgrep -u reqtrace -f 'reqtrace agent-worker'; }
prometheus() { curl -s --get http://127.0.0.1:9090/api/v1/query --data-urlencode "query=$1"; }
has() { prometheus "$1" | grep -q '"value":\[[0-9.]*,"1"\]'; }
shipped() { curl -s http://127.0.0.1:9465/metrics | awk -v name="$1" 'index($0, name) == 1 { v = $NF } END { exit !(v > 0) }'; }

begun=$(now) score=
begin install
must dpkg --install /trial/reqtrace.deb
must getent passwd reqtrace
end "$(dpkg-query --show --showformat '${Version}' reqtrace)"

begin configure
cat > /etc/reqtrace/agent.toml <<'CONFIG'
[[rule]]
match   = { exe = "/usr/sbin/mariadbd" }
service = "orders-db"
profile = "mysql"
slo     = "20ms"
CONFIG
would_trace() {
    reqtrace agent --config /etc/reqtrace/agent.toml --check |
        grep 'mariadbd  *orders-db .*traced by the rule at line 1: /usr/sbin/mariadbd (mariadb.service)'
}
wait_for 30 would_trace
end "1 process would be traced"

# Half of the statements wait for 30 ms, and are slow.
while :; do
    for i in 1 2 3 4 5 6 7 8 9 10; do
        echo 'UPDATE trial.counter SET v = v + 1; SELECT SLEEP(0.03);'
    done
done | mariadb --init-command 'CREATE DATABASE IF NOT EXISTS trial; CREATE TABLE IF NOT EXISTS trial.counter SELECT 0 AS v' > /dev/null 2>&1 &

begin start
must systemctl enable --now reqtrace-agent
must [ "$(property ActiveState)" = active ]
end "$(property ActiveState): $(property StatusText)"
begin traced
wait_for 120 is_traced
end "$(property StatusText)"
begin figures
wait_for 60 at_least 'reqtrace_request_duration_seconds_count{service="orders-db",type="command"}' 20
end "$(curl -s $metrics | grep agent_process{ | sed 's/.*process="\([a-z]*\)",user_id="\([0-9]*\)",capabilities="\([^"]*\)".*/\1 (user \2): \3/' | tr '\n' ';')"
grep -q reqtrace.short /proc/cmdline && {
    echo done > $out
    finish
    exit
}

begin prometheus
cp /usr/share/doc/reqtrace/prometheus/reqtrace-rules.yml /etc/prometheus/
sed -i 's|^rule_files:|rule_files:\n  - reqtrace-rules.yml|; s|^scrape_configs:|scrape_configs:\n  - job_name: reqtrace\n    static_configs: [{ targets: ["127.0.0.1:9464"] }]|' /etc/prometheus/prometheus.yml
must promtool check config /etc/prometheus/prometheus.yml
must systemctl reload prometheus
wait_for 60 has 'up{job="reqtrace"}'
end "$(prometheus 'scrape_samples_scraped{job="reqtrace"}' | sed 's/.*,"\([0-9]*\)"\].*/\1 samples a scrape/')"
begin alert
wait_for 600 has 'ALERTS{alertname="ReqtraceSlowRequests",alertstate="firing",service="orders-db"}'
end "ReqtraceSlowRequests fires"
echo "step all $(now | awk '{ print $1 - b }' b="$begun") from the package to the alert" > $out

begin reload
sed -i 's/20ms/25ms/' /etc/reqtrace/agent.toml
must systemctl reload reqtrace-agent
wait_for 30 at_least 'reqtrace_config_reloads_total{result="accepted"}' 1
must [ "$(curl -s $metrics | grep ^reqtrace_slo_seconds | cut -d ' ' -f 2)" = 0.025 ]
sed -i 's/25ms/25 apples/' /etc/reqtrace/agent.toml
systemctl reload reqtrace-agent
wait_for 30 at_least 'reqtrace_config_reloads_total{result="refused"}' 1
must is_traced
sed -i 's/25 apples/25ms/' /etc/reqtrace/agent.toml
must systemctl reload reqtrace-agent
wait_for 30 at_least reqtrace_config_last_reload_successful 1
end "accepted, refused and accepted; $(property NRestarts) restarts"

# With root causes nothing is left out but whole windows, and an emulated CPU is slow.
begin root-causes
printf 'max-cost = "90%%"\nblame = true\n' >> /etc/reqtrace/agent.toml
must systemctl reload reqtrace-agent
wait_for 180 at_least 'reqtrace_root_cause_seconds_total{service="orders-db",type="command",cause="timer"}' 1
share=$(curl -s $metrics | awk '/^reqtrace_root_cause_seconds_total/ { all += $NF } /cause="unknown"/ { unknown += $NF } END { print 100 * unknown / all }')
must awk "BEGIN { exit !($share < 20) }"
sed -i '/blame/d' /etc/reqtrace/agent.toml
must systemctl reload reqtrace-agent
end "$share % unknown"

for who in tracing worker attaching; do
    for signal in KILL STOP; do
        begin $signal-$who
        wait_for 60 is_traced
        restarts=$(property NRestarts)
        pid=$(property MainPID)
        [ $who = worker ] && pid=$(worker)
        [ $who = attaching ] && pid=$(pgrep -f 'reqtrace agent-attacher')
        must kill -$signal "$pid"
        wait_for 240 is_again
        end "$(journalctl --no-pager -o cat -u reqtrace-agent | grep -i 'the worker has\|the worker says\|that attaches\|watchdog\|code=' | tail -n 2 | tr '\n' ';')"
    done
done

begin rows
cat >> /etc/reqtrace/agent.toml <<'CONFIG'
[rows]
dir    = "/var/lib/reqtrace/rows"
one-in = 10
roll   = { every = "30s" }
CONFIG
must systemctl restart reqtrace-agent
wait_for 180 at_least reqtrace_rows_files_total 1
end "$(value reqtrace_rows_written_total) rows; $(find /var/lib/reqtrace/rows -name '*.parquet' -printf '%m %u %g\n' | head -n 1)"

begin ship
cat > /etc/reqtrace/ship.toml <<'CONFIG'
[ship]
dir   = "/var/lib/reqtrace/rows"
state = "/var/lib/reqtrace-ship"
[clickhouse]
url   = "http://127.0.0.1:8123"
table = "reqtrace.requests"
CONFIG
must systemctl enable --now reqtrace-ship
wait_for 60 shipped 'reqtrace_ship_failures_total{cause="unreachable"}'
# An engine that takes all.
perl -MIO::Socket::INET -e '
    $SIG{CHLD} = "IGNORE";
    my $at = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1:8123", ReuseAddr => 1) or die $!;
    while (my $peer = $at->accept) {
        my ($length, $line) = (0, "");
        while (defined($line = <$peer>) && $line ne "\r\n") { $length = $1 if $line =~ /^content-length: *(\d+)/i }
        read $peer, my $body, $length;
        print $peer "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        close $peer;
    }' &
wait_for 180 shipped reqtrace_ship_files_total
end "$(curl -s http://127.0.0.1:9465/metrics | grep '^reqtrace_ship_[a-z]*_total' | tr '\n' ';')"

begin limits
for unit in reqtrace-agent reqtrace-ship; do
    score="$score $(systemd-analyze security $unit | tail -n 1 | sed 's/.*: \([0-9.]*\) .*/\1/')"
done
group=/sys/fs/cgroup/system.slice/reqtrace-agent.service
end "exposure:$score; memory $(cat $group/memory.current) of $(cat $group/memory.max) bytes, peak $(cat $group/memory.peak)"

begin stop
must systemctl stop reqtrace-agent
must [ "$(property Result)" = success ]
must systemctl start reqtrace-agent
must dpkg --remove reqtrace
must [ -z "$(pgrep -x reqtrace)" ]
must [ ! -e /etc/systemd/system/multi-user.target.wants/reqtrace-agent.service ]
end "removed, and nothing runs"
echo done > $out
finish
