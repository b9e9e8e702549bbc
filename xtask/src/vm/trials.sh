# Part of the guest's init: the same service traced where something is missing, forbidden or elsewhere. Each trial leaves a folder in
# /out/trials, for the host to judge.

TRIAL_REQUESTS=40

mkdir -p /inside /empty
mount -t securityfs securityfs /sys/kernel/security

# trial NAME PROFILE LOAD [AS...]: traces $target, as things are now, while the function LOAD runs; AS starts the tracer.
trial() {
    local out=/out/trials/$1 profile=$2 meanwhile=$3
    shift 3
    mkdir -p "$out/trace"
    # Root writes into no folder of somebody else.
    [ $# -eq 0 ] || chown 65534:65534 "$out/trace"
    "$@" reqtrace --profile "$profile" -p "$target" 60 --max-overhead 100 --out "$out/trace" >"$out/report.txt" 2>"$out/reqtrace.err" &
    local tracer=$!
    if wait_attached "$tracer" "$out/reqtrace.err"; then
        "$meanwhile" "$out/load.out"
    fi
    kill -TERM "$tracer" 2>/dev/null
    wait "$tracer"
    echo $? >"$out/reqtrace.status"
    "$@" reqtrace doctor >"$out/doctor.txt" 2>"$out/doctor.err"
    echo $? >"$out/doctor.status"
    say "trial ${out##*/} ended with $(cat "$out/reqtrace.status")"
}

orders() {
    shop load --connect "$address" --connections 2 --requests "$TRIAL_REQUESTS" >"$1" 2>&1
}

# The same before and after the wall clock is set an hour on.
orders_at_two_times() {
    orders "$1.before"
    sleep 1
    date -s "@$(($(date +%s) + 3600))"
    sleep 1
    orders "$1"
    date -s "@$(($(date +%s) - 3600))"
    sleep 1
}

# A service as process 1 of PID and mount namespaces of its own: its program, its data and its /tmp are where nobody else has
# them.
inside() {
    unshare -m -p -f sh -c '
        mount -t tmpfs tmpfs /inside && mount -t tmpfs tmpfs /tmp && mount -t proc proc /proc &&
        mkdir /inside/data && mount --bind /disk/inside /inside/data && cp "/bin/$0" "/inside/$0" && exec "/inside/$0" "$@"
    ' "$@"
}

# The process of that service, as it is numbered out here.
find_inside() {
    local waited=0
    while [ "$waited" -lt 30 ]; do
        target=$(grep -l '^NSpid:[[:space:]]*[0-9][0-9]*[[:space:]][[:space:]]*1$' /proc/[0-9]*/status | cut -d/ -f3)
        if [ -n "$target" ] && grep -q "^$1" "/proc/$target/comm"; then
            return 0
        fi
        waited=$((waited + 1))
        sleep 1
    done
    say "no $1 in its own namespaces"
    return 1
}

generated_code() {
    echo go >&4
    sleep 2
}

mkdir /disk/inside
inside shop serve --listen 127.0.0.1:0 --data /inside/data --log /inside/log >/out/inside.out 2>/out/inside.err &
wait_for /out/inside.out 'listening on ' 30
address=$(sed -n 's/^listening on //p' /out/inside.out)
find_inside shop && trial inside /shop.toml orders
kill -KILL $target
wait

mkfifo /tmp/go
inside generated 1000 20 /tmp </tmp/go >/out/generated.out 2>/out/generated.err &
exec 4>/tmp/go
wait_for /out/generated.out 'chain: ' 30
find_inside generated && trial generated /generated.toml generated_code
kill -KILL $target
exec 4>&-
wait

shop serve --listen 127.0.0.1:0 --data /data --log /tmp/log >/out/trials.out 2>/out/trials.err &
target=$!
wait_for /out/trials.out 'listening on ' 30
address=$(sed -n 's/^listening on //p' /out/trials.out)
paranoid=$(cat /proc/sys/kernel/perf_event_paranoid)
as_user="run-as --reuid 65534 --regid 65534 --clear-groups"
caps=+bpf,+perfmon,+sys_ptrace,+dac_read_search
as_user="$as_user --inh-caps $caps --ambient-caps $caps"

for level in -1 2; do
    echo "$level" >/proc/sys/kernel/perf_event_paranoid
    trial "paranoid$level" /shop.toml orders
done
trial user2 /shop.toml orders $as_user
echo "$paranoid" >/proc/sys/kernel/perf_event_paranoid
trial user /shop.toml orders $as_user

trial clock /shop.toml orders_at_two_times

restrict=$(cat /proc/sys/kernel/kptr_restrict)
echo 2 >/proc/sys/kernel/kptr_restrict
trial kptr_restrict /shop.toml orders
echo "$restrict" >/proc/sys/kernel/kptr_restrict

# Features that this kernel has, taken for lacking: each without which a trace is refused, and the others.
without() {
    export REQTRACE_HIDE=$2
    trial "without_$1" /shop.toml orders
    unset REQTRACE_HIDE
}
for feature in tracepoints switch-states helpers task-members probe-members file-members; do
    without $feature $feature
done
without sockets page-faults,TCP-sockets,Unix-sockets
without ease uprobe_multi,process-filter,maps-by-descriptor,lockless-hits

mount --bind /empty /sys/kernel/btf
trial no_btf /shop.toml orders
umount /sys/kernel/btf

# The way back is closed.
for mode in integrity confidentiality; do
    echo "$mode" >/sys/kernel/security/lockdown
    cat /sys/kernel/security/lockdown >"/out/$mode"
    trial "$mode" /shop.toml orders
done

kill -TERM "$target"
wait "$target"
