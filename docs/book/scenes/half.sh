# Disaster: an agent removed half of a project, and changed three files that its owner had edited.

. "$SCENES/agent.sh"
mkdir -p "$HOME/site/css" "$HOME/site/js" "$HOME/site/pages" "$HOME/site/old"
cd "$HOME/site"
for page in home about shop contact; do
    printf 'title: %s\nbody: Welcome.\nfooter: none\n' "$page" > "pages/$page.txt"
done
for n in 1 2 3; do
    echo "/* style $n */" > "css/style$n.css"
    echo "// code $n" > "js/code$n.js"
    echo "old $n" > "old/page$n.txt"
done
printf 'out/\n.env\n' > .gitignore
echo 'TOKEN=1' > .env

agent s1 'add a contact form' 'echo "form: yes" >> pages/contact.txt'
# The owner edits three pages.
for page in home about shop; do
    sed -i 's/^body: .*/body: Written by hand./' "pages/$page.txt"
done
agent s1 'clean up what is not used' '
    rm -r css js old
    for page in home about shop; do sed -i "s/^body: .*/body: TODO/" "pages/$page.txt"; done'
agent s1 'add a footer' 'sed -i "s/^footer: .*/footer: (c) us/" pages/*.txt'
