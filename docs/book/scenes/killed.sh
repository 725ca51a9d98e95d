# Disaster: the agent was killed half way through a rewrite, and its owner went on without noticing.

. "$SCENES/agent.sh"
mkdir -p "$HOME/lib/src"
cd "$HOME/lib"
for n in 1 2 3 4 5 6; do printf 'old(%s)\n' "$n" > "src/part$n.c"; done
echo 'int main;' > main.c

agent s1 'write a make file' 'echo "all:" > Makefile'
backstitch --session s1 turn begin --key 2 --prompt 'rename old() to fresh() everywhere'
backstitch --session s1 tool before --call c2 --tool Bash
sed -i 's/old/fresh/' src/part1.c src/part2.c src/part3.c
rm src/part4.c
# Here the agent's process dies: no end of the call, no end of the turn.
echo 'int main(void);' > main.c
