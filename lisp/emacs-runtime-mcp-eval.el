;;; emacs-runtime-mcp-eval.el --- Evaluate one form for a coding agent  -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The emacs-runtime-mcp authors

;; SPDX-License-Identifier: MIT
;; Keywords: lisp, tools

;; This file is not part of GNU Emacs.

;;; Commentary:

;; The evaluator of emacs-runtime-mcp: one source string in, one reply
;; out.  It knows nothing of sockets, queues and time; the module's
;; pump (emacs-runtime-mcp-module.el) calls `emacs-runtime-mcp-eval',
;; and the relay carries this very file through emacsclient and calls
;; `emacs-runtime-mcp-eval-client'.
;;
;; What it promises:
;; - Exactly one form is read before anything is evaluated.
;; - The form is evaluated once, with lexical binding, in the buffer of
;;   the selected window (not the minibuffer).
;; - It can be stopped: by a throw from inside its own waits, and by a
;;   signal that Emacs turns into a call of our `debugger'.  Outside the
;;   form nothing of that is in force.
;; - Whatever it returns or signals becomes a reply whose strings are
;;   valid Unicode.  Of a printed value no more than the asked number
;;   of characters is kept in memory, and all are counted.
;; - The person notices nothing but what the form itself did: current
;;   buffer, match data, region, echo area, command state and undo
;;   steps stay theirs.
;;
;; It depends on nothing outside Emacs 28 and is ASCII, so that it can
;; travel as an argument.  For the same reason its top-level forms are
;; definitions only: the relay defines them for one call and puts back
;; what was there before.

;;; Code:

(defconst emacs-runtime-mcp-eval-version "0.1.0"
  "Version of the evaluator; relay and module have the same.")

(defconst emacs-runtime-mcp-eval--output-max 16384
  "How many characters of a form's output are kept; the rest is dropped.")

(defconst emacs-runtime-mcp-eval--message-max 4096
  "How many characters of an error message are kept; the rest is cut.")

(defconst emacs-runtime-mcp-eval--backtrace-max 8192
  "How many characters of an error's backtrace are kept; the rest is cut.")

(defconst emacs-runtime-mcp-eval--frames-max 50
  "How many frames of an error's backtrace are kept, innermost first.")

(defconst emacs-runtime-mcp-eval--notes-max 1000
  "Of how many signals in one form the backtrace is kept.
A form that goes on handling errors is not slowed down for ever.")

(defconst emacs-runtime-mcp-eval--patience 10000
  "How many characters are printed by uncompiled Lisp before it is compiled.")

(defconst emacs-runtime-mcp-eval--invalid "[^\0-\ud7ff\ue000-\U0010ffff]"
  "Regexp for what Unicode doesn't have: raw bytes and surrogates.")

(defvar emacs-runtime-mcp-allow-interaction nil
  "Non-nil means a form may prompt; a call can then wait for a person.")

(defvar emacs-runtime-mcp-eval--running nil
  "Non-nil while a form runs, whichever path brought it.")

(defvar emacs-runtime-mcp-eval--stage nil
  "While a form runs, the function that keeps book of it.
It is called with `enter' when the form is about to begin, and returns
nil if it must not; with `thrown' when we were called out of the form,
and returns non-nil if the form is to be stopped; with `spare' when we
were called out of something else that runs in the form's wait, and
returns non-nil if the form is to be stopped, but that may go on for
now; and with `leave' when the form has ended.")

(defvar emacs-runtime-mcp-eval--form nil
  "The running form, to know its frame on the stack.")

(defvar emacs-runtime-mcp-eval--noted nil
  "List (COUNT SYMBOL DATA FRAMES) of the running form's last signal.
FRAMES is a list of (EVALD FUNCTION ARGS), innermost first.")

;; What is kept of the running form stands in variables, and markers and
;; lists are filled anew for each form: closures and new objects would be
;; garbage, and what a call leaves to the collector is most of what it
;; costs.  There is one form at a time.

(defvar emacs-runtime-mcp-eval--saved nil
  "Alist of the top-level values of `--bound' before the running form.
Where a variable had none, its entry is its own value.")

(defvar emacs-runtime-mcp-eval--said nil
  "List of the first characters of the running form's output, last first.")

(defvar emacs-runtime-mcp-eval--said-chars 0
  "How many characters the running form's output has so far.")

(defvar emacs-runtime-mcp-eval--log-end (make-marker)
  "Where *Messages* ended at the last look.")

(defvar emacs-runtime-mcp-eval--log-tick nil
  "The `buffer-chars-modified-tick' of *Messages* at the last look.")

(defvar emacs-runtime-mcp-eval--log-line nil
  "The last line of *Messages* at the last look.")

(defvar emacs-runtime-mcp-eval--log-start (make-marker)
  "Where *Messages* ended before the running form.")

(defvar emacs-runtime-mcp-eval--shown nil
  "What the echo area showed before the running form.")

(defvar emacs-runtime-mcp-eval--undo nil
  "What `--undo-after' needs, as (ENDED . CHANGED), lists of buffers.")

(defvar emacs-runtime-mcp-eval--debug-on-error nil
  "What the running form has set `debug-on-error' to.")

(defvar emacs-runtime-mcp-eval--guard-timer nil
  "The timer that looks whether the form of an emacsclient is still there.")

(defvar emacs-runtime-mcp-eval--lost #'ignore
  "Function to call with a reply when the running form was lost.
A form is lost when Emacs runs out of C stack: it jumps to its command
loop then and unwinds nothing.")

(defconst emacs-runtime-mcp-eval--bound
  '(debugger debug-on-event debug-on-error debug-on-signal debug-on-quit
    debug-on-next-call inhibit-debugger debug-ignored-errors
    internal-when-entered-debugger throw-on-input quit-flag inhibit-quit
    inhibit-interaction inhibit-message message-log-max standard-output
    signal-hook-function emacs-runtime-mcp-eval--form
    emacs-runtime-mcp-eval--noted deactivate-mark this-command
    last-command current-prefix-arg
    undo-auto--undoably-changed-buffers max-lisp-eval-depth
    max-specpdl-size print-length print-level print-circle print-quoted
    print-gensym print-number-table print-continuous-numbering
    print-escape-newlines print-escape-control-characters
    print-escape-multibyte print-escape-nonascii
    print-charset-text-property float-output-format
    emacs-runtime-mcp-eval--running emacs-runtime-mcp-eval--stage)
  "What is bound around a form, and what a form that recurses may raise.")

;; The person's state that a form is kept away from.
(defvar undo-auto--undoably-changed-buffers)
(defvar print-symbols-bare)
(defvar print-unreadable-function)
(defvar print-integers-as-characters)
(defvar inhibit-debugger)
(defvar debug-on-event)
(defvar byte-compile-warnings)
(defvar byte-compile-verbose)

;;; Reading

(defun emacs-runtime-mcp-eval--nesting (source)
  "Return how deep SOURCE nests, at least; quotes count as levels."
  (let ((at 0) (depth 0) (quotes 0) (deepest 0) (in-string nil)
        (length (length source)))
    (while (setq at (string-match (if in-string "[\"\\]" "[^ \t\n\f\r]")
                                  source at))
      (let ((char (aref source at)))
        (setq at (1+ at))
        (cond
         ((eq char ?\\) (setq at (min length (1+ at))))
         ((eq char ?\") (setq in-string (not in-string)))
         (in-string)
         ((memq char '(?\( ?\[)) (setq depth (+ depth quotes 1)))
         ((memq char '(?\) ?\])) (setq depth (1- depth)))
         ((eq char ?\;)
          (setq at (or (string-match "\n" source at) length)))
         ((eq char ??)
          ;; A backslash after it skips one more by itself.
          (unless (and (< at length) (eq (aref source at) ?\\))
            (setq at (min length (1+ at))))))
        (setq quotes (if (memq char '(?' ?` ?,)) (1+ quotes) 0)
              deepest (max deepest (+ depth quotes)))))
    deepest))

(defun emacs-runtime-mcp-eval--read (source)
  "Return a list of the one form in SOURCE, or a reply why there is none."
  (condition-case err
      (let* ((read-circle t)
             (read (progn
                     (when (and (< emacs-major-version 29)
                                (> (length source) 10000)
                                (> (emacs-runtime-mcp-eval--nesting source)
                                   10000))
                       (signal 'invalid-read-syntax
                               '("nested deeper than the 10,000 levels \
that Emacs before 29 can read without running out of stack")))
                     (read-from-string source)))
             (rest (string-match "[^ \t\n\r\f\v\u00a0]" source (cdr read))))
        (if (not rest)
            (list (car read))
          (emacs-runtime-mcp-eval--failure
           'invalid_expression "invalid-read-syntax"
           (format "after the first form there is more: %S; nothing was evaluated; \
send one form, and wrap several in (progn ...)"
                   (substring source rest
                              (min (length source) (+ rest 60)))))))
    (end-of-file
     (emacs-runtime-mcp-eval--failure
      'invalid_expression "end-of-file"
      "the expression ends before a form is complete: a parenthesis or \
string is open, or there are only comments"))
    (error
     (emacs-runtime-mcp-eval--failure
      'invalid_expression (emacs-runtime-mcp-eval--name (car err))
      (emacs-runtime-mcp-eval--message err)))))

;;; Compiling itself

(defun emacs-runtime-mcp-eval--interpreted-p (symbol)
  "Return non-nil if SYMBOL's function is Lisp that is not compiled."
  (let ((function (symbol-function symbol)))
    (not (or (subrp function) (byte-code-function-p function)))))

(defun emacs-runtime-mcp-eval--compile (symbol)
  "Compile SYMBOL's function, unless it is compiled, without a word."
  (when (emacs-runtime-mcp-eval--interpreted-p symbol)
    (let ((byte-compile-warnings nil)
          (byte-compile-verbose nil)
          (inhibit-message t)
          (message-log-max nil))
      (byte-compile symbol))))

;;; Printing

(defun emacs-runtime-mcp-eval--valid (string)
  "Return STRING as valid Unicode.
A raw byte becomes a backslash and three octal digits, a surrogate
or a character that Unicode doesn't have U+FFFD."
  (let ((string (string-to-multibyte string)))
    (if (or (= (length string) (string-bytes string)) ; all ASCII
            (not (string-match-p emacs-runtime-mcp-eval--invalid string)))
        string
      (replace-regexp-in-string
       emacs-runtime-mcp-eval--invalid
       (lambda (match)
         (let ((byte (multibyte-char-to-unibyte (aref match 0))))
           (if (<= 128 byte 255) (format "\\%03o" byte) "\ufffd")))
       string t t))))

(defun emacs-runtime-mcp-eval--cut (string max)
  "Return STRING, cut after MAX characters."
  (if (<= (length string) max) string (substring string 0 max)))

(defmacro emacs-runtime-mcp-eval--with-default-print (&rest body)
  "Evaluate BODY with the print settings of a fresh Emacs."
  (declare (debug t) (indent 0))
  `(let ((print-length nil) (print-level nil) (print-circle nil)
         (print-quoted t) (print-gensym nil) (print-number-table nil)
         (print-continuous-numbering nil) (print-escape-newlines nil)
         (print-escape-control-characters nil)
         (print-escape-multibyte nil)
         ;; `prin1-to-string' prints into a buffer, and that binds it.
         (print-escape-nonascii t)
         (print-charset-text-property 'default)
         (print-integers-as-characters nil) (print-symbols-bare nil)
         (print-unreadable-function nil) (float-output-format nil))
     ,@body))

(defun emacs-runtime-mcp-eval--unpropertied-p (value)
  "Return non-nil if VALUE is a string without text properties."
  (and (stringp value)
       (not (equal value ""))
       (not (text-properties-at 0 value))
       (not (next-property-change 0 value))))

(defun emacs-runtime-mcp-eval--plain-p (value)
  "Return non-nil if VALUE is a string that is quickly printed whole.
Its print is at most four times as long; short ones aren't worth it."
  (and (stringp value)
       (< 256 (length value) 1000000)
       (emacs-runtime-mcp-eval--unpropertied-p value)))

(defun emacs-runtime-mcp-eval--print-plain (value max)
  "Print VALUE as `emacs-runtime-mcp-eval--print', with MAX; into a buffer.
That takes a twentieth of the time, and where there is nothing to escape
a hundredth.  Return (VALUE . bare) if its print is VALUE in quotes: to
make such a string is to leave one more to the garbage collector."
  (with-temp-buffer
    (set-buffer-multibyte t)
    (unless (or (string-search "\"" value) (string-search "\\" value))
      (insert "\"" value "\""))
    (when (or (bobp)
              (and (/= (position-bytes (point)) (point)) ; not all ASCII
                   (or (not (multibyte-string-p value))
                       (string-match-p emacs-runtime-mcp-eval--invalid
                                       value))))
      (erase-buffer)
      (emacs-runtime-mcp-eval--with-default-print
        (prin1 value (current-buffer))))
    (if (and (= (buffer-size) (+ (length value) 2) (1- (position-bytes (point))))
             (<= (buffer-size) max))
        (cons value 'bare)
      (cons (buffer-substring-no-properties
             (point-min) (min (point-max) (+ (point-min) max)))
            (buffer-size)))))

(defun emacs-runtime-mcp-eval--print (value max)
  "Print VALUE as `prin1-to-string' does by default, keeping MAX characters.
Return a cons (TEXT . CHARS); CHARS counts all of them.  If it is the
symbol `bare', nothing is cut, TEXT is ASCII, and lacks the quotes around
it."
  (cond
   ((emacs-runtime-mcp-eval--plain-p value)
    (emacs-runtime-mcp-eval--print-plain value max))
   ;; As good as always short.
   ((or (numberp value) (symbolp value))
    (let ((text (emacs-runtime-mcp-eval--with-default-print
                  (prin1-to-string value))))
      (cons (emacs-runtime-mcp-eval--cut text max) (length text))))
   (t
    (emacs-runtime-mcp-eval--print-counting value max))))

(defun emacs-runtime-mcp-eval--print-counting (value max)
  "Print VALUE as `emacs-runtime-mcp-eval--print', with MAX; by character.
However long the print is, no more than MAX are ever in memory."
  (let ((chars 0)
        (kept nil)
        ;; What is kept is garbage as soon as it is a string; to collect
        ;; it in between would take longer than the printing.
        (gc-cons-threshold (max gc-cons-threshold
                                (min (* 20 max) 6000000)))
        ;; Emacs calls the sink for each character.  As source, which is
        ;; how it travels through emacsclient, that is slow, and to load
        ;; the compiler takes as long as a few thousand characters.
        (patience (and (emacs-runtime-mcp-eval--interpreted-p
                        'emacs-runtime-mcp-eval--print-counting)
                       emacs-runtime-mcp-eval--patience)))
    (if (catch 'emacs-runtime-mcp-eval--slow
          (emacs-runtime-mcp-eval--with-default-print
            ;; To look for properties to leave out Emacs copies a string.
            (let ((print-charset-text-property
                   (or (emacs-runtime-mcp-eval--unpropertied-p value) 'default)))
              (prin1 value
                     (lambda (char)
                       (when (< chars max) (push char kept))
                       (setq chars (1+ chars))
                       (when (eq chars patience)
                         (throw 'emacs-runtime-mcp-eval--slow t))))))
          nil)
        (progn
          (emacs-runtime-mcp-eval--compile
           'emacs-runtime-mcp-eval--print-counting)
          (emacs-runtime-mcp-eval--print-counting value max))
      (cons (concat (nreverse kept)) chars))))

;;; Replies

(defun emacs-runtime-mcp-eval--name (symbol)
  "Return the name of SYMBOL, a condition; of anything else its text."
  (if (symbolp symbol) (symbol-name symbol) (format "%S" symbol)))

(defun emacs-runtime-mcp-eval--message (err)
  "Return a text for ERR, an error as `condition-case' gives it."
  (let ((text (condition-case nil
                  (emacs-runtime-mcp-eval--with-default-print
                    (error-message-string err))
                (error ""))))
    (if (string-match-p "[^ \t\n]" text)
        text
      (emacs-runtime-mcp-eval--name (car-safe err)))))

(defun emacs-runtime-mcp-eval--failure (code symbol message
                                             &optional backtrace)
  "Return a reply: CODE, a symbol, SYMBOL, a string or nil, and MESSAGE.
BACKTRACE is a string or nil."
  (vector (symbol-name code)
          (emacs-runtime-mcp-eval--valid
           (emacs-runtime-mcp-eval--cut
            message emacs-runtime-mcp-eval--message-max))
          nil nil nil
          (and symbol (emacs-runtime-mcp-eval--valid symbol))
          (and backtrace (emacs-runtime-mcp-eval--valid backtrace))))

(defun emacs-runtime-mcp-eval--success (printed max output)
  "Return a reply: PRINTED is a cons (TEXT . CHARS) cut after MAX.
OUTPUT is a string, perhaps empty."
  (let* ((text (car printed))
         (bare (eq (cdr printed) 'bare))
         (chars (if bare (+ (length text) 2) (cdr printed))))
    (vector nil
            (if bare text (emacs-runtime-mcp-eval--valid text))
            chars
            (if bare 'bare (> chars max))
            (unless (equal output "")
              (emacs-runtime-mcp-eval--valid output))
            nil nil)))

;;; Backtraces

(defun emacs-runtime-mcp-eval--note (symbol data)
  "Keep the stack on which SYMBOL is signalled with DATA.
This is the `signal-hook-function' while a form runs: when an error
reaches us the stack is gone.  Printing has to wait until it does, for
most errors are handled.
A quit may be a signal's for which Emacs calls no `debugger', since it
was about to call it when that quit came in between; the form must not
handle it, and a guest go on with it."
  (when (eq symbol 'quit)
    (if (and debug-on-quit (emacs-runtime-mcp-eval--spared-p))
        ;; Only when its debugger returns does Emacs go on after a quit.
        (setq internal-when-entered-debugger -1
              inhibit-debugger nil)
      (emacs-runtime-mcp-eval--stop)))
  (let ((count (1+ (or (car emacs-runtime-mcp-eval--noted) 0)))
        (left emacs-runtime-mcp-eval--frames-max)
        (frames nil))
    (when (and (<= count emacs-runtime-mcp-eval--notes-max)
               ;; There is no room left to look around.
               (not (memq symbol '(excessive-lisp-nesting
                                   excessive-variable-binding))))
      (catch 'emacs-runtime-mcp-eval--enough
        (mapbacktrace
         (lambda (evald function args _flags)
           (when (or (zerop left)
                     (and (eq function 'eval)
                          (eq (car-safe args) emacs-runtime-mcp-eval--form)))
             (throw 'emacs-runtime-mcp-eval--enough nil))
           (unless (memq function '(signal emacs-runtime-mcp-eval--note))
             (setq left (1- left))
             (push (list evald function args) frames)))
         #'emacs-runtime-mcp-eval--note)))
    (setq emacs-runtime-mcp-eval--noted
          (list count symbol data (nreverse frames)))))

(defun emacs-runtime-mcp-eval--brief (value)
  "Print VALUE in a few characters."
  (let ((chars nil) (left 200))
    (catch 'emacs-runtime-mcp-eval--enough
      (emacs-runtime-mcp-eval--with-default-print
        (let ((print-length 8) (print-level 4) (print-escape-newlines t))
          (prin1 value (lambda (char)
                         (push char chars)
                         (when (zerop (setq left (1- left)))
                           (setq chars (nconc (list ?. ?. ?.) chars))
                           (throw 'emacs-runtime-mcp-eval--enough nil)))))))
    (concat (nreverse chars))))

(defun emacs-runtime-mcp-eval--backtrace (err)
  "Return the backtrace of ERR as text, or nil if it was not noted."
  (let ((noted (cdr emacs-runtime-mcp-eval--noted)))
    (when (and (eq (car err) (car noted)) (eq (cdr err) (nth 1 noted))
               (nth 2 noted))
      (condition-case nil
          (emacs-runtime-mcp-eval--cut
           (mapconcat
            (lambda (frame)
              (if (car frame)
                  (format "%s(%s)"
                          (emacs-runtime-mcp-eval--brief (nth 1 frame))
                          (mapconcat #'emacs-runtime-mcp-eval--brief
                                     (nth 2 frame) " "))
                (emacs-runtime-mcp-eval--brief
                 (cons (nth 1 frame) (nth 2 frame)))))
            (nth 2 noted) "\n")
           emacs-runtime-mcp-eval--backtrace-max)
        (error nil)))))

;;; Output: `standard-output' and what `message' logs, in order

(defun emacs-runtime-mcp-eval--last-line (buffer)
  "Return the last line of BUFFER, a live messages buffer."
  (with-current-buffer buffer
    (save-excursion
      (goto-char (point-max))
      (when (bolp) (forward-line -1))
      (buffer-substring-no-properties (point) (line-end-position)))))

(defun emacs-runtime-mcp-eval--log-unchanged-p (buffer)
  "Return non-nil if BUFFER is as *Messages* was at the last look."
  (and (eq buffer (marker-buffer emacs-runtime-mcp-eval--log-end))
       (eq (buffer-chars-modified-tick buffer)
           emacs-runtime-mcp-eval--log-tick)))

(defun emacs-runtime-mcp-eval--log-look (buffer line)
  "Remember how BUFFER is now, which is *Messages*, with LINE its last."
  (set-marker emacs-runtime-mcp-eval--log-end
              (1+ (buffer-size buffer)) buffer)
  (setq emacs-runtime-mcp-eval--log-line line
        emacs-runtime-mcp-eval--log-tick (buffer-chars-modified-tick buffer)))

(defun emacs-runtime-mcp-eval--log-begin ()
  "Remember where *Messages* ends before a form."
  (let ((buffer (get-buffer "*Messages*")))
    (cond
     ((not buffer)
      (set-marker emacs-runtime-mcp-eval--log-end nil))
     ((not (emacs-runtime-mcp-eval--log-unchanged-p buffer))
      (emacs-runtime-mcp-eval--log-look
       buffer (emacs-runtime-mcp-eval--last-line buffer))))
    (set-marker emacs-runtime-mcp-eval--log-start
                emacs-runtime-mcp-eval--log-end buffer)))

(defun emacs-runtime-mcp-eval--unfold (line)
  "Split LINE of *Messages* into (TEXT . TIMES).
Emacs writes an equal line that follows as \" [N times]\"."
  (if (string-match " \\[\\([2-9]\\|[1-9][0-9]+\\) times\\]\\'" line)
      (cons (substring line 0 (match-beginning 0))
            (string-to-number (match-string 1 line)))
    (cons line 1)))

(defun emacs-runtime-mcp-eval--logged ()
  "Return what *Messages* got since the last look, and look anew."
  (let ((buffer (get-buffer "*Messages*"))
        (end emacs-runtime-mcp-eval--log-end))
    (if (or (not buffer)
            (emacs-runtime-mcp-eval--log-unchanged-p buffer))
        ""
      (with-current-buffer buffer
        (save-restriction
          (widen)
          (let* ((known (eq buffer (marker-buffer end)))
                 (start (if known
                            (if (memq (char-before end) '(nil ?\n))
                                (marker-position end)
                              ;; Something printed had left its line open.
                              (min (1+ end) (point-max)))
                          (point-min)))
                 (text (buffer-substring-no-properties start (point-max)))
                 ;; An equal first line replaced the last one before it.
                 (before (and known emacs-runtime-mcp-eval--log-line
                              (emacs-runtime-mcp-eval--unfold
                               emacs-runtime-mcp-eval--log-line)))
                 (lines (split-string (replace-regexp-in-string
                                       "\n\\'" "" text)
                                      "\n"))
                 (first t))
            (emacs-runtime-mcp-eval--log-look
             buffer (if (equal text "")
                        (emacs-runtime-mcp-eval--last-line buffer)
                      (car (last lines))))
            (if (equal text "")
                ""
              (mapconcat
               (lambda (line)
                 (let* ((unfolded (emacs-runtime-mcp-eval--unfold line))
                        (times (cdr unfolded)))
                   (when (and first before (> times 1)
                              (equal (car before) (car unfolded)))
                     (setq times (- times (cdr before))))
                   (setq first nil)
                   ;; No more than can be kept, whatever the number says.
                   (apply #'concat
                          (make-list
                           (min times emacs-runtime-mcp-eval--output-max)
                           (concat (car unfolded) "\n")))))
               lines ""))))))))

(defun emacs-runtime-mcp-eval--say (char)
  "Add CHAR to the running form's output."
  (when (< emacs-runtime-mcp-eval--said-chars
           emacs-runtime-mcp-eval--output-max)
    (push char emacs-runtime-mcp-eval--said))
  (setq emacs-runtime-mcp-eval--said-chars
        (1+ emacs-runtime-mcp-eval--said-chars)))

(defun emacs-runtime-mcp-eval--say-logged ()
  "Add what was logged meanwhile to the running form's output."
  (mapc #'emacs-runtime-mcp-eval--say (emacs-runtime-mcp-eval--logged)))

(defun emacs-runtime-mcp-eval--print-char (char)
  "Take CHAR; this is the `standard-output' of a form."
  (emacs-runtime-mcp-eval--say-logged)
  (emacs-runtime-mcp-eval--say char))

;;; Undo: the form's changes are a step of their own

(defun emacs-runtime-mcp-eval--undo-before (buffers)
  "End the undo step that a person has begun in each of BUFFERS.
Return a list of (BUFFER . UNDO-LIST) for `--undo-after'.  Unlike
`undo-boundary' it can be taken back, so that typing stays one step
across forms that change nothing."
  (let ((ended nil))
    (dolist (buffer buffers ended)
      (when (buffer-live-p buffer)
        (with-current-buffer buffer
          (when (car-safe buffer-undo-list)
            (push nil buffer-undo-list)
            (push (cons buffer buffer-undo-list) ended)))))))

(defun emacs-runtime-mcp-eval--undo-after (ended changed)
  "Take back what `--undo-before' ENDED where nothing came after it.
End the form's own undo step in each of CHANGED, a list of buffers."
  (dolist (entry ended)
    (when (buffer-live-p (car entry))
      (with-current-buffer (car entry)
        (when (eq buffer-undo-list (cdr entry))
          (setq buffer-undo-list (cdr buffer-undo-list))))))
  (dolist (buffer changed)
    (when (buffer-live-p buffer)
      (with-current-buffer buffer (undo-boundary)))))

;;; Evaluating

(defun emacs-runtime-mcp-eval--buffer ()
  "Return the buffer that a person would say they are in."
  (window-buffer (or (minibuffer-selected-window) (selected-window))))

(defun emacs-runtime-mcp-eval--value (form)
  "Return the value of FORM; a jump that would leave it is an error.
The command loop's own tags would close the person's minibuffer."
  (let ((value nil) (left nil) (tag 'top-level))
    (catch 'top-level
      (catch 'exit
        (setq value (eval form t)
              left t))
      (unless left (setq tag 'exit)))
    (if left value (signal 'no-catch (list tag nil)))))

(defun emacs-runtime-mcp-eval--trim-log ()
  "Trim *Messages* to what the person wants to keep.
The form was allowed to log without bound, so that its first messages
were not gone before they could be read."
  (let* ((start emacs-runtime-mcp-eval--log-start)
         (max message-log-max)
         (buffer (marker-buffer start)))
    (unless (or (not buffer) (eq max t)
                (= start (1+ (buffer-size buffer))))
      (with-current-buffer buffer
        (save-restriction
          (widen)
          (let ((inhibit-read-only t))
            (cond
             ((null max) (delete-region start (point-max)))
             ((and (natnump max) (> (- (point-max) start) 65536))
              (save-excursion
                (goto-char (point-max))
                (forward-line (- max))
                (delete-region (point-min) (point)))))))))))

(defun emacs-runtime-mcp-eval--tidy ()
  "Put back what is the person's after a form."
  (emacs-runtime-mcp-eval--undo-after (car emacs-runtime-mcp-eval--undo)
                                      (cdr emacs-runtime-mcp-eval--undo))
  (emacs-runtime-mcp-eval--trim-log)
  ;; Even a message that is not displayed clears the echo area.
  (unless (or (not emacs-runtime-mcp-eval--shown)
              (equal emacs-runtime-mcp-eval--shown (current-message)))
    (let ((message-log-max nil))
      (message "%s" emacs-runtime-mcp-eval--shown)))
  ;; Keep nothing alive.
  (setq emacs-runtime-mcp-eval--said nil
        emacs-runtime-mcp-eval--shown nil
        emacs-runtime-mcp-eval--undo nil))

(defun emacs-runtime-mcp-eval--run (form max)
  "Evaluate FORM and return a reply whose value is cut after MAX characters."
  (emacs-runtime-mcp-eval--log-begin)
  (setq emacs-runtime-mcp-eval--said nil
        emacs-runtime-mcp-eval--said-chars 0
        emacs-runtime-mcp-eval--shown (current-message)
        emacs-runtime-mcp-eval--undo
        (let ((ended (emacs-runtime-mcp-eval--undo-before
                      (bound-and-true-p undo-auto--undoably-changed-buffers))))
          (and ended (list ended))))
  (unwind-protect
      (condition-case err
          (let ((printed
                 (with-current-buffer (emacs-runtime-mcp-eval--buffer)
                   (let ((undo-auto--undoably-changed-buffers nil)
                         (deactivate-mark nil)
                         (this-command this-command)
                         (last-command last-command)
                         (current-prefix-arg nil)
                         (inhibit-message t)
                         (message-log-max t)
                         (emacs-runtime-mcp-eval--form form)
                         (signal-hook-function #'emacs-runtime-mcp-eval--note)
                         (standard-output
                          #'emacs-runtime-mcp-eval--print-char))
                     (unwind-protect
                         (emacs-runtime-mcp-eval--print
                          (emacs-runtime-mcp-eval--value form) max)
                       (when undo-auto--undoably-changed-buffers
                         (setq emacs-runtime-mcp-eval--undo
                               (cons (car emacs-runtime-mcp-eval--undo)
                                     undo-auto--undoably-changed-buffers))))))))
            (emacs-runtime-mcp-eval--say-logged)
            (emacs-runtime-mcp-eval--success
             printed max (concat (nreverse emacs-runtime-mcp-eval--said))))
        (t (when (memq (car err) '(quit minibuffer-quit))
             (emacs-runtime-mcp-eval--calm))
           (emacs-runtime-mcp-eval--failure
            'elisp_error
            (emacs-runtime-mcp-eval--name (car err))
            (emacs-runtime-mcp-eval--message err)
            (emacs-runtime-mcp-eval--backtrace err))))
    (emacs-runtime-mcp-eval--tidy)))

;; With interaction inhibited even `sit-for' signals, since it waits by
;; reading an event; but to wait is not to prompt.
(defun emacs-runtime-mcp-eval--sit-for (sit-for &rest args)
  "Call SIT-FOR with ARGS; within a form it may wait."
  (if emacs-runtime-mcp-eval--running
      (let ((inhibit-interaction nil))
        (apply sit-for args))
    (apply sit-for args)))

;; In a daemon without a frame the debugger ends Emacs, by intention.
(defun emacs-runtime-mcp-eval--debug (debug &rest args)
  "Call DEBUG with ARGS; within a form it is a prompt like any other."
  (if (and emacs-runtime-mcp-eval--running inhibit-interaction)
      (signal 'inhibited-interaction nil)
    (apply debug args)))

(defun emacs-runtime-mcp-eval--advise (on)
  "Let `sit-for' and `debug' know of running forms if ON, else no more."
  (if on
      (progn
        (advice-add 'sit-for :around #'emacs-runtime-mcp-eval--sit-for)
        (advice-add 'debug :around #'emacs-runtime-mcp-eval--debug))
    (advice-remove 'sit-for #'emacs-runtime-mcp-eval--sit-for)
    (advice-remove 'debug #'emacs-runtime-mcp-eval--debug)))

;;; Stopping

(defun emacs-runtime-mcp-eval--on-stack-p ()
  "Return non-nil if a form is being evaluated on this thread's stack.
Asked of the stack itself: variables would still say so after a jump
that unwound nothing."
  (backtrace-frame 0 'emacs-runtime-mcp-eval--guarded))

(defun emacs-runtime-mcp-eval--calm ()
  "Undo what a signal has set in motion."
  (setq debug-on-next-call nil
        debug-on-quit nil
        quit-flag nil
        ;; Emacs calls no debugger for a second quit without a key typed
        ;; since the first call; the quit would unwind by itself, and the
        ;; first function of a cleanup form would be taken for the form.
        internal-when-entered-debugger -1))

(defun emacs-runtime-mcp-eval--guest-p ()
  "Return non-nil inside a guest of the form, something in its wait.
That is a timer, what hears of a process, or a person's command."
  (catch 'emacs-runtime-mcp-eval--enough
    (mapbacktrace
     (lambda (_evald function args _flags)
       (cond
        ((eq function 'emacs-runtime-mcp-eval--guarded)
         (throw 'emacs-runtime-mcp-eval--enough nil))
        ((or (memq function '(timer-event-handler command-execute))
             ;; As filters and sentinels are called, whoever they are.
             (and (processp (car-safe args)) (stringp (car-safe (cdr args)))
                  (null (cddr args))))
         (throw 'emacs-runtime-mcp-eval--enough t)))))
    nil))

(defun emacs-runtime-mcp-eval--spared-p ()
  "Return non-nil if a signal has struck a guest that has time left.
It is the form that is to be stopped, and a guest that is cut off may
lose what it was called for, such as a piece of a process's output."
  (and emacs-runtime-mcp-eval--stage
       (emacs-runtime-mcp-eval--guest-p)
       (funcall emacs-runtime-mcp-eval--stage 'spare)))

(defun emacs-runtime-mcp-eval--break (why &optional value)
  "Stop the form if it is to be stopped, else go on.
This is the `debugger' while a form runs.  Emacs calls it when a signal
has come; and since a form may set `debug-on-error' itself, also for
errors, which are none of its business.  It calls it for the function
that it is about to call, and then again, with WHY `exit', when that
returns VALUE."
  (if (eq why 'exit)
      (progn
        (setq internal-when-entered-debugger -1)
        value)
    (emacs-runtime-mcp-eval--calm)
    (when (emacs-runtime-mcp-eval--on-stack-p)
      (if (not (emacs-runtime-mcp-eval--spared-p))
          (emacs-runtime-mcp-eval--stop)
        (let ((frame (backtrace-frame 1 'emacs-runtime-mcp-eval--break)))
          ;; The signal's quit itself; now `--note' cares for it.
          (when (and (eq (nth 1 frame) 'emacs-runtime-mcp-eval--note)
                     (eq (nth 2 frame) 'quit))
            (setq debug-on-quit t)))))
    nil))

(defun emacs-runtime-mcp-eval--stop ()
  "Throw out of the running form if it is to be stopped.
To be called only from inside the form."
  (when (and emacs-runtime-mcp-eval--stage
             (funcall emacs-runtime-mcp-eval--stage 'thrown))
    (emacs-runtime-mcp-eval--calm)
    (throw 'emacs-runtime-mcp-eval--stop 'stopped)))

(defun emacs-runtime-mcp-eval--recover ()
  "Put back what a lost form has left bound, and answer for it.
To be called when a form is said to run, but is not on the stack."
  (dolist (entry emacs-runtime-mcp-eval--saved)
    (unless (eq (cdr entry) entry)
      (set-default-toplevel-value (car entry) (cdr entry))))
  (when (> (recursion-depth) 0)
    (display-warning
     'emacs-runtime-mcp
     "An agent's form has run out of C stack while a minibuffer or \
recursive edit was open.  Emacs will end when that is left: save your \
work now (C-x s), and restart Emacs."
     :emergency))
  (funcall emacs-runtime-mcp-eval--lost
           (emacs-runtime-mcp-eval--failure
            'elisp_error "stack-overflow"
            "the form ran out of C stack, by recursion or nesting; Emacs \
has jumped to its command loop, and no cleanup form has run")))

(defun emacs-runtime-mcp-eval--save ()
  "Remember the top-level values of what is bound around a form."
  (unless emacs-runtime-mcp-eval--saved
    (setq emacs-runtime-mcp-eval--saved
          (mapcar #'list emacs-runtime-mcp-eval--bound)))
  (let ((left emacs-runtime-mcp-eval--saved))
    (while left
      (condition-case nil
          (while left
            (setcdr (car left) (default-toplevel-value (caar left)))
            (setq left (cdr left)))
        (void-variable
         (setcdr (car left) (car left))
         (setq left (cdr left)))))))

(defun emacs-runtime-mcp-eval--guarded (stage source max)
  "Evaluate SOURCE so that it can be stopped, and return its reply.
Return `stopped' if it was, or if STAGE said not to begin.  STAGE is
as `emacs-runtime-mcp-eval--stage', MAX as for `emacs-runtime-mcp-eval'."
  (let ((result 'stopped)
        (left nil))
    (emacs-runtime-mcp-eval--save)
    (setq emacs-runtime-mcp-eval--debug-on-error nil)
    ;; A signal that strikes while another Lisp thread runs is then an
    ;; event that means nothing; bindings belong to one thread.
    (set-default-toplevel-value 'debug-on-event nil)
    (unwind-protect
        (let* ((emacs-runtime-mcp-eval--running t)
               (emacs-runtime-mcp-eval--stage stage)
               (debugger #'emacs-runtime-mcp-eval--break)
               (debug-on-event 'sigusr2)
               (debug-on-error nil)
               ;; Without these two a handler for `quit' swallows every
               ;; signal.
               (debug-on-signal t)
               (internal-when-entered-debugger -1)
               (debug-on-quit nil)
               (debug-on-next-call nil)
               (inhibit-debugger nil)
               (debug-ignored-errors nil)
               (throw-on-input nil)
               (emacs-runtime-mcp-eval--noted nil)
               ;; Emacs raises it for `signal-hook-function' to have room.
               (max-lisp-eval-depth max-lisp-eval-depth)
               (quit-flag nil)
               (inhibit-quit nil)
               (inhibit-interaction
                (not emacs-runtime-mcp-allow-interaction)))
          (setq result
                (catch 'emacs-runtime-mcp-eval--stop
                  (condition-case nil
                      (if (funcall stage 'enter)
                          (emacs-runtime-mcp-eval--read-and-run source max)
                        'stopped)
                    (quit
                     (emacs-runtime-mcp-eval--calm)
                     (emacs-runtime-mcp-eval--failure
                      'elisp_error "quit" "Quit")))))
          ;; What the form has set for the person's sake, they get.
          (setq emacs-runtime-mcp-eval--debug-on-error debug-on-error)
          ;; A signal between the form's end and `leave' throws past
          ;; anything that stands here only once.
          (while (not left)
            (catch 'emacs-runtime-mcp-eval--stop
              (condition-case nil
                  (progn
                    (funcall stage 'leave)
                    (setq left t))
                (quit nil)))
            ;; A quit flag that is set now would outlive its binding.
            (emacs-runtime-mcp-eval--calm)))
      (set-default-toplevel-value
       'debug-on-event
       (cdr (assq 'debug-on-event emacs-runtime-mcp-eval--saved)))
      (when emacs-runtime-mcp-eval--debug-on-error
        (set-default-toplevel-value 'debug-on-error
                                    emacs-runtime-mcp-eval--debug-on-error)))
    result))

(defun emacs-runtime-mcp-eval--read-and-run (source max)
  "Read the one form in SOURCE and evaluate it; return a reply.
MAX is as for `emacs-runtime-mcp-eval'."
  (save-match-data
    (let ((form (emacs-runtime-mcp-eval--read source)))
      (if (vectorp form)
          form
        (emacs-runtime-mcp-eval--run (car form) max)))))

(defun emacs-runtime-mcp-eval (source max stage)
  "Read one form from SOURCE, evaluate it, and return a reply.
STAGE is a function as `emacs-runtime-mcp-eval--stage'.  The reply is
the symbol `stopped' if the form was stopped, or not begun since it was
to be; else a vector
  [CODE TEXT CHARS TRUNCATED OUTPUT SYMBOL BACKTRACE]:
CODE is nil for a value, else the name of an error code of
`emacs_eval'; TEXT is the printed value, cut after MAX characters,
or the error's message; CHARS counts the characters of the whole
value and TRUNCATED says whether TEXT lacks some, `bare' that it
lacks nothing but the quotes around it; OUTPUT is what
the form printed and messaged, or nil; SYMBOL is the name of the
condition that was signalled, or nil; BACKTRACE is the stack from
there to the form, or nil.  All strings are valid Unicode.
Never called while `emacs-runtime-mcp-eval--running'."
  (emacs-runtime-mcp-eval--guarded stage source max))

;;; Through emacsclient

(defun emacs-runtime-mcp-eval--line (reply)
  "Return REPLY of `emacs-runtime-mcp-eval' as one line of words.
A word is a number, t, nil, or an equals sign and a string as base64
of UTF-8."
  (when (eq (aref reply 3) 'bare)
    (setq reply (copy-sequence reply))
    (aset reply 1 (concat "\"" (aref reply 1) "\""))
    (aset reply 3 nil))
  (mapconcat (lambda (value)
               (if (stringp value)
                   (concat "=" (base64-encode-string
                                (encode-coding-string value 'utf-8-unix) t))
                 (format "%s" value)))
             reply " "))

(defun emacs-runtime-mcp-eval--guard ()
  "See whether the running form is still there.
A timer calls this while the form waits, or when the form was lost; the
module needs none, since its core rings now and then."
  (when (and (eq (current-thread) main-thread)
             emacs-runtime-mcp-eval--running
             (not (emacs-runtime-mcp-eval--on-stack-p)))
    (cancel-timer emacs-runtime-mcp-eval--guard-timer)
    (emacs-runtime-mcp-eval--recover)))

(defun emacs-runtime-mcp-eval--by-deadline (source max deadline)
  "Evaluate SOURCE with MAX; return a reply, or a symbol why there is none.
At DEADLINE, in seconds since the epoch, a form that waits is thrown
out: `stopped'.  One that computes goes on.  `cancelled' says that a
person stopped it, `expired' that it was too late to begin."
  (if (>= (float-time) deadline)
      'expired
    (let* ((why nil)
           (stage (lambda (stage)
                    (cond ((eq stage 'thrown) why)
                          ((eq stage 'cancel) (setq why 'cancelled))
                          ;; No signal is sent by this path.
                          ((eq stage 'spare) nil)
                          (t t))))
           (timer (run-at-time (- deadline (float-time)) nil
                               (lambda ()
                                 (setq why (or why 'stopped))
                                 (when (emacs-runtime-mcp-eval--on-stack-p)
                                   (emacs-runtime-mcp-eval--stop)))))
           (advised (advice-member-p #'emacs-runtime-mcp-eval--sit-for
                                     'sit-for)))
      (setq emacs-runtime-mcp-eval--guard-timer
            (run-at-time 0.25 0.25 #'emacs-runtime-mcp-eval--guard))
      (unless advised (emacs-runtime-mcp-eval--advise t))
      (unwind-protect
          (let ((reply (emacs-runtime-mcp-eval source max stage)))
            (if (eq reply 'stopped) why reply))
        (cancel-timer timer)
        (cancel-timer emacs-runtime-mcp-eval--guard-timer)
        (unless advised (emacs-runtime-mcp-eval--advise nil))))))

(defun emacs-runtime-mcp-eval-client (source request max deadline file)
  "Evaluate for the emacsclient path and return a reply as one line.
SOURCE is the expression as base64 of UTF-8; where it is nil the
file REQUEST has that, and is deleted.  MAX is as for
`emacs-runtime-mcp-eval'.  DEADLINE is when the answer is due, in
seconds since the epoch; see `emacs-runtime-mcp-eval--by-deadline' for
the lines of one word.  A line too long for emacsclient's slow printing
goes into FILE, which must not exist, and the line returned is \"file\"."
  (let* ((file-name-handler-alist nil)
         (coding-system-for-read 'no-conversion)
         (coding-system-for-write 'no-conversion)
         (source
          (or source
              (with-temp-buffer
                (set-buffer-multibyte nil)
                (insert-file-contents-literally request)
                (delete-file request)
                (buffer-string))))
         (reply
          (let ((coding-system-for-read nil)
                (coding-system-for-write nil)
                (file-name-handler-alist
                 (default-toplevel-value 'file-name-handler-alist)))
            (emacs-runtime-mcp-eval--by-deadline
             (decode-coding-string (base64-decode-string source) 'utf-8-unix)
             max deadline)))
         (line (if (symbolp reply)
                   (symbol-name reply)
                 (emacs-runtime-mcp-eval--line reply))))
    (if (< (length line) 4096)
        line
      (with-file-modes #o600
        (write-region line nil file nil 'quiet nil 'excl))
      "file")))

(provide 'emacs-runtime-mcp-eval)
;;; emacs-runtime-mcp-eval.el ends here
