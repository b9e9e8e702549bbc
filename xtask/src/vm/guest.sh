#!/bin/busybox sh
# The guest's init: traces the example service under load and sends the results to the second
# serial port. What is printed here goes to the first one, the console.

/bin/busybox mkdir -p /proc /sys /dev /tmp /data /out /sbin /usr/bin /usr/sbin
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin

LOAD_CONNECTIONS=4
LOAD_REQUESTS=1000
TRACE_SECONDS=120
ATTACH_SECONDS=60

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mount -t tmpfs tmpfs /tmp
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
ip link set lo up

say() {
    echo "REQTRACE-VM $*"
}

# Sends everything and powers off; what is missing in it is for the host to judge.
finish() {
    say "sending"
    dmesg >/out/dmesg
    uname -r >/out/kernel
    stty -F /dev/ttyS1 raw
    tar -C /out -czf - . >/dev/ttyS1
    say "end"
    poweroff -f
}

# Writes a program's exit code where the host looks for it.
record() {
    echo "$2" >"/out/$1.status"
    say "$1 ended with $2"
}

# How many probes a process holds open.
probes() {
    ls -l "/proc/$1/fd" 2>/dev/null | grep -c -E 'perf_event|bpf[-_]link'
}

# Waits until the number of a process's probes is above zero and stays.
wait_attached() {
    local before=0 now waited=0
    while [ "$waited" -lt "$ATTACH_SECONDS" ] && [ -d "/proc/$1/fd" ]; do
        now=$(probes "$1")
        if [ "$now" -gt 0 ] && [ "$now" = "$before" ]; then
            say "attached $now probes"
            return 0
        fi
        before=$now
        waited=$((waited + 1))
        sleep 1
    done
    say "no probe seen"
    return 1
}

say "begin $(uname -r)"

shop serve --listen 127.0.0.1:0 --data /data --log /out/service.log >/out/serve.out 2>/out/serve.err &
shop=$!
tries=0
until grep -q '^listening on ' /out/serve.out || [ "$tries" -ge 30 ]; do
    tries=$((tries + 1))
    sleep 1
done
address=$(sed -n 's/^listening on //p' /out/serve.out)
if [ -z "$address" ]; then
    say "the service does not listen"
    finish
fi

reqtrace --profile /shop.toml -p "$shop" "$TRACE_SECONDS" --out /out/trace \
    >/out/report.txt 2>/out/reqtrace.err &
tracer=$!
if wait_attached "$tracer"; then
    shop load --connect "$address" --connections "$LOAD_CONNECTIONS" --requests "$LOAD_REQUESTS" \
        >/out/load.out 2>&1
    record load $?
fi

# The load is over; the tracer ends early and still reports.
kill -TERM "$tracer" 2>/dev/null
wait "$tracer"
record reqtrace $?

# The service writes its log when it is asked to end.
kill -TERM "$shop"
wait "$shop"
record shop $?

finish
