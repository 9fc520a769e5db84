#!/bin/sh
# A tour of the REST interface of a hub, with curl alone. Start the hub first:
#   duologue serve --config examples/hub/hub.toml
# HUB is its address, and KEY the key of a principal: by default the token of the local user.
set -eu

HUB=${HUB:-http://127.0.0.1:8931}
KEY=${KEY:-$(cat "${XDG_STATE_HOME:-$HOME/.local/state}/duologue/token")}
# The tour can be taken again: its ids are new each time. It also goes on if the hub is killed and started again meanwhile: curl
# repeats its requests, and the tasks are safe to be repeated.
RUN=${RUN:-$$}
SAFE='"metadata": {"retry": "safe"}'

call() {
    method=$1 path=$2
    shift 2
    printf '\n> %s %s\n' "$method" "$path"
    curl --silent --show-error --fail-with-body --retry 20 --retry-delay 1 --retry-all-errors --request "$method" \
        --header "X-API-Key: $KEY" --header 'Content-Type: application/json' "$@" "$HUB$path"
    echo
}

# Waits until a task has a status or a member.
wait_for() {
    path=$1 wanted=$2 left=100
    until curl --silent --header "X-API-Key: $KEY" "$HUB$path" | grep -q "$wanted"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || { echo "$path has no $wanted" >&2; exit 1; }
        sleep 0.1
    done
}

echo '# Discover agents.'
call GET '/agents?capability=review'
call GET /agents/writer/capabilities

echo '# Send a message, and wait for the answer.'
call POST /agents/writer/messages \
    --data '{"message": {"type": "query", "content": "hello", "mimeType": "text/plain"}, "mode": "sync"}'

echo '# Leave a message in the inbox.'
call POST /agents/writer/messages \
    --data "{\"messageId\": \"note-$RUN\", \"message\": {\"type\": \"inform\", \"content\": \"thoughts\"}}"
wait_for "/agents/writer/messages/note-$RUN" '"status":"completed"'

echo '# Create a task, and follow its events to the end.'
call POST /agents/writer/tasks \
    --data "{\"taskId\": \"plan-$RUN\", \"task\": {\"type\": \"write\", \"parameters\": {\"prompt\": \"plan\"}}, $SAFE}"
call GET "/agents/writer/tasks/plan-$RUN/events" --no-buffer
call GET "/agents/writer/tasks/plan-$RUN"

echo '# Answer the question of a task.'
call POST /agents/reviewer/tasks \
    --data "{\"taskId\": \"review-$RUN\", \"task\": {\"type\": \"review\", \"parameters\": {\"prompt\": \"go\"}}, $SAFE}"
wait_for "/agents/reviewer/tasks/review-$RUN/input" questionId
call GET "/agents/reviewer/tasks/review-$RUN/input"
call POST "/agents/reviewer/tasks/review-$RUN/input" --data '{"answer": {"optionId": "allow-once"}}'
wait_for "/agents/reviewer/tasks/review-$RUN" '"status":"completed"'

echo '# Cancel a task.'
call POST /agents/writer/tasks \
    --data "{\"taskId\": \"long-$RUN\", \"task\": {\"type\": \"wait\", \"parameters\": {\"prompt\": \"cancel\"}}, $SAFE}"
wait_for "/agents/writer/tasks/long-$RUN" '"status":"processing"'
call POST "/agents/writer/tasks/long-$RUN/cancel"
wait_for "/agents/writer/tasks/long-$RUN" '"status":"cancelled"'

echo '# Read the sessions of the tasks.'
call GET /sessions
echo 'The tour is complete.'
