# What an agent's hooks tell around a prompt and its tools. Read by the other scenes.

# agent SESSION PROMPT COMMAND: one prompt, answered with one shell command.
agent() {
    turns=$((${turns:-0} + 1))
    backstitch --session "$1" turn begin --key "$turns" --prompt "$2"
    backstitch --session "$1" tool before --call "call-$turns" --tool Bash
    sh -c "$3"
    backstitch --session "$1" tool after --call "call-$turns"
    backstitch --session "$1" turn end
}
