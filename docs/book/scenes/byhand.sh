# Disaster: no agent is connected; a script removed more than it should, hours after the one checkpoint of the day.

mkdir -p "$HOME/paper/figures"
cd "$HOME/paper"
for n in 1 2 3; do echo "Chapter $n" > "chapter$n.txt"; echo "figure $n" > "figures/$n.svg"; done
echo 'DATA=/srv' > .env
printf '*.log\n.env\n' > .gitignore
backstitch checkpoint -m morning
echo 'Chapter 2, better' > chapter2.txt
echo 'Chapter 4' > chapter4.txt
rm -r figures chapter1.txt .env
