"""Small tasks that networks on our own attention learn on a CPU in minutes; each is a command.

python -m attnprobe.models.tasks.dates --model recurrent     dates in words -> 1987-03-03, aligned (Bahdanau 2015)
python -m attnprobe.models.tasks.dates --model transformer   the same with an encoder-decoder transformer
python -m attnprobe.models.tasks.induction                   A B … A -> B, and which head does it
"""
