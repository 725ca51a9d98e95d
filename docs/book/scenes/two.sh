# Disaster: two agents worked in one folder at once; one of them was wrong about everything.

. "$SCENES/agent.sh"
mkdir -p "$HOME/app/src" "$HOME/app/docs"
cd "$HOME/app"
for n in a b c; do printf 'def %s():\n    return 1\n' "$n" > "src/$n.py"; done
echo 'Read me.' > docs/README.md
backstitch checkpoint

good() { backstitch --session docs-agent "$@"; }
bad() { backstitch --session lint-agent "$@"; }
good turn begin --key 1 --prompt 'write the documentation'
bad turn begin --key 1 --prompt 'fix all lint errors'
good tool before --call g1 --tool Write docs/guide.md
echo 'A guide.' > docs/guide.md
good tool after --call g1 docs/guide.md
bad tool before --call b1 --tool Bash
sed -i 's/return 1/return None/' src/*.py
rm docs/README.md
echo 'lint: off' > lint.cfg
bad tool after --call b1
good tool before --call g2 --tool Write docs/api.md
echo 'The functions.' > docs/api.md
good tool after --call g2 docs/api.md
bad turn end
good turn end
# The owner writes, too.
echo 'a: to do' > notes.txt
