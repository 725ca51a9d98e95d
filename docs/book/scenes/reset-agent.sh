# The agent of that repository.

agent s1 'make the tests pass' 'git reset -q --hard HEAD~1; git stash drop -q; git clean -q -fd'
