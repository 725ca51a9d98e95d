# A repository with work that no commit has: staged, not staged, not tracked, stashed.

. "$SCENES/agent.sh"
mkdir -p "$HOME/api/src"
cd "$HOME/api"
git init -q
printf 'def get():\n    return 1\n' > src/api.py
git add . && git commit -q -m 'The api'
printf 'def get():\n    return 2\n' > src/api.py
git commit -q -a -m 'Return 2'
echo 'an idea' > idea.txt && git add idea.txt && git stash push -q -m 'an idea'
printf 'def get():\n    return 3\n' > src/api.py && git add src/api.py
printf 'def get():\n    return 4\n' > src/api.py
echo 'notes' > notes.txt
