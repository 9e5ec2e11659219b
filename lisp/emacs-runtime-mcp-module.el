;;; emacs-runtime-mcp-module.el --- Let coding agents work in this Emacs  -*- lexical-binding: t; -*-

;; Copyright (C) 2026 The emacs-runtime-mcp authors

;; SPDX-License-Identifier: MIT
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: lisp, tools
;; URL: https://github.com/emacs-runtime-mcp/emacs-runtime-mcp

;; This file is not part of GNU Emacs.

;;; Commentary:

;; (require 'emacs-runtime-mcp-module) in your init file is the whole
;; set-up: it loads the native core from beside this file and listens
;; on a private socket next to the Emacs server's.  To require it is to
;; ask for the listener; `emacs-runtime-mcp-stop' ends it.
;;
;; A connected agent can do whatever you can do in Emacs; see
;; SECURITY.md.
;;
;; This file is the life of the listener and its pump.  How a form is
;; evaluated is in emacs-runtime-mcp-eval.el; sockets and the queue are
;; the core's.
;;
;; The way of a call: a thread of the core puts it into the queue and
;; writes one byte to a pipe process.  That process's filter arms a
;; timer of zero seconds.  The timer's function, the pump, takes the
;; call, evaluates it and hands the reply back; between two calls it
;; looks whether the person has typed, and lets them go first.

;;; Code:

(require 'server)
(require 'emacs-runtime-mcp-eval)

(declare-function emacs-runtime-mcp-core--start "ext:emacs-runtime-mcp-core"
                  (socket process emacs-version server-name directory))
(declare-function emacs-runtime-mcp-core--stop "ext:emacs-runtime-mcp-core" ())
(declare-function emacs-runtime-mcp-core--heard "ext:emacs-runtime-mcp-core" ())
(declare-function emacs-runtime-mcp-core--take "ext:emacs-runtime-mcp-core" ())
(declare-function emacs-runtime-mcp-core--stage "ext:emacs-runtime-mcp-core"
                  (key stage))
(declare-function emacs-runtime-mcp-core--cancel "ext:emacs-runtime-mcp-core"
                  ())
(declare-function emacs-runtime-mcp-core--finish "ext:emacs-runtime-mcp-core"
                  (key reply))
(declare-function emacs-runtime-mcp-core--status "ext:emacs-runtime-mcp-core"
                  ())

;;; Options

(defgroup emacs-runtime-mcp nil
  "Coding agents that work in this Emacs."
  :group 'tools
  :prefix "emacs-runtime-mcp-")

(defcustom emacs-runtime-mcp-allow-interaction nil
  "Whether a form that an agent sent may prompt you.
If nil, a prompt is an error at once, and nobody waits for an answer
that you do not know is wanted."
  :type 'boolean)

;;; State

(defconst emacs-runtime-mcp-module--directory
  (file-name-directory (or load-file-name buffer-file-name))
  "Where this file is, and the core beside it.")

(defconst emacs-runtime-mcp-module--budget 0.005
  "Seconds that the pump goes on before it gives way to the command loop.
A form is never cut for it; it is looked at between two forms.")

(defconst emacs-runtime-mcp-module--large 65536
  "Length of a reply's text that is worth a look at the garbage it left.")

(defvar emacs-runtime-mcp-module--process nil
  "The pipe process through which the core wakes Emacs.")

(defvar emacs-runtime-mcp-module--timer nil
  "The timer that runs the pump, or nil before the first call.")

(defvar emacs-runtime-mcp-module--key nil
  "The core's key of the call whose form was begun last.")

;;; The pump

(defun emacs-runtime-mcp-module--arm (&optional seconds)
  "Let the pump run as soon as Emacs waits, or after SECONDS."
  (cond
   ((memq emacs-runtime-mcp-module--timer timer-list))
   ((and emacs-runtime-mcp-module--timer (not seconds))
    ;; The same one again; this is done for each call.
    (timer-set-time emacs-runtime-mcp-module--timer '(0 0))
    (timer-activate emacs-runtime-mcp-module--timer))
   (t
    ;; Anew: were the same timer set to a later time from within itself,
    ;; Emacs would wait for that time and be late for other timers.
    (setq emacs-runtime-mcp-module--timer
          (run-at-time (or seconds 0) nil #'emacs-runtime-mcp-module--pump)))))

(defun emacs-runtime-mcp-module--filter (_process _bytes)
  "Let the pump run: there is work.
Forms do not run in here: a filter's Emacs is not quite a person's."
  (let ((debug-on-error nil))
    (emacs-runtime-mcp-core--heard)
    (emacs-runtime-mcp-module--arm)))

(defun emacs-runtime-mcp-module--pump ()
  "Take forms and evaluate them until there are none, or others go first.
While a form waits this runs inside its wait, and stops it if it is to
be stopped; it never begins another one there."
  (let ((debug-on-error nil))
    (cond
     ((not (eq (current-thread) main-thread))
      (emacs-runtime-mcp-module--arm 0.02))
     ((emacs-runtime-mcp-eval--on-stack-p)
      (emacs-runtime-mcp-eval--stop)
      ;; If emacsclient brought the form, nobody tells when it has ended.
      (when (> (nth 3 (emacs-runtime-mcp-core--status)) 0)
        (emacs-runtime-mcp-module--arm 0.02)))
     (emacs-runtime-mcp-eval--running
      (emacs-runtime-mcp-eval--recover))
     (t
      (emacs-runtime-mcp-module--run)))))

(defun emacs-runtime-mcp-module--run ()
  "Evaluate the forms that wait, as long as the budget lasts."
  (let (;; Floats, since sums of exact times are bignums.
        (until (+ (float-time) emacs-runtime-mcp-module--budget))
        (more t))
    (while more
      (let ((call (emacs-runtime-mcp-core--take)))
        (setq more (and call (emacs-runtime-mcp-module--evaluate call)))
        (when (and more (or (input-pending-p) (< until (float-time))))
          ;; Not at once: as long as a timer is due Emacs looks for keys
          ;; between two of them, but for no output of any process.
          (emacs-runtime-mcp-module--arm 0.001)
          (setq more nil))))))

(defun emacs-runtime-mcp-module--evaluate (call)
  "Evaluate CALL, a list (KEY EXPRESSION MAX-OUTPUT-CHARS).
Return non-nil if more calls wait."
  (let ((reply nil))
    (setq emacs-runtime-mcp-module--key (car call)
          emacs-runtime-mcp-eval--lost #'emacs-runtime-mcp-module--lost)
    (unwind-protect
        (setq reply (emacs-runtime-mcp-eval
                     (nth 1 call) (nth 2 call)
                     #'emacs-runtime-mcp-module--stage))
      (unless reply
        ;; A throw to a tag of code that waited when this began.
        (emacs-runtime-mcp-module--lost
         (emacs-runtime-mcp-eval--failure
          'elisp_error "no-catch"
          "the form threw to a tag outside its evaluation"))))
    (let ((more (emacs-runtime-mcp-core--finish
                 emacs-runtime-mcp-module--key reply)))
      ;; Now, when an agent has its answer and a person has not typed,
      ;; and not in the middle of the next form or command.
      (when (and (not more)
                 (vectorp reply)
                 (>= (length (aref reply 1)) emacs-runtime-mcp-module--large)
                 (not (input-pending-p)))
        (garbage-collect-maybe 2))
      more)))

(defun emacs-runtime-mcp-module--stage (stage)
  "Tell the core of STAGE; see `emacs-runtime-mcp-eval--stage'."
  (emacs-runtime-mcp-core--stage emacs-runtime-mcp-module--key stage))

(defun emacs-runtime-mcp-module--lost (reply)
  "End a call with REPLY whose form was left by a jump."
  (emacs-runtime-mcp-module--stage 'leave)
  (when (emacs-runtime-mcp-core--finish emacs-runtime-mcp-module--key reply)
    (emacs-runtime-mcp-module--arm)))

;;; The place

(defun emacs-runtime-mcp-module--socket ()
  "Return where to listen: beside the server's socket or file."
  (concat
   (or (and server-process (process-get server-process :server-file))
       (expand-file-name server-name
                         (if (or server-use-tcp (not server-socket-dir))
                             server-auth-dir
                           server-socket-dir)))
   ".mcp"))

(defun emacs-runtime-mcp-module--warn (format &rest args)
  "Warn the person with FORMAT and ARGS."
  (display-warning 'emacs-runtime-mcp (apply #'format-message format args)))

(defun emacs-runtime-mcp-module--reason (err)
  "Return the text of ERR, an error of the core or of Emacs."
  (if (and (eq (car err) 'rust-error) (stringp (cadr err)))
      (cadr err)
    (error-message-string err)))

;;; Loading the core

(defun emacs-runtime-mcp-module--load ()
  "Load the core; return nil, after a warning, if that is not possible."
  (let ((file (expand-file-name
               (concat "emacs-runtime-mcp-core"
                       (or (bound-and-true-p module-file-suffix) ".so"))
               emacs-runtime-mcp-module--directory))
        (fallback "agents reach this Emacs through emacsclient only, which is \
slower and cannot stop a running form"))
    (condition-case err
        (cond
         ((not (and (fboundp 'module-load)
                    (bound-and-true-p module-file-suffix)))
          (emacs-runtime-mcp-module--warn
           "This Emacs was built without support for dynamic modules; %s"
           fallback)
          nil)
         ((not (or (featurep 'emacs-runtime-mcp-core) (file-exists-p file)))
          (emacs-runtime-mcp-module--warn
           "%s is missing: run `make install', or `make build' in a checkout; %s"
           file fallback)
          nil)
         (t
          (unless (featurep 'emacs-runtime-mcp-core)
            (module-load file))
          (let ((version (car (emacs-runtime-mcp-core--status))))
            (or (equal version emacs-runtime-mcp-eval-version)
                (progn
                  (emacs-runtime-mcp-module--warn
                   "The core is of version %s, its Lisp of version %s: \
install both anew, and restart Emacs, which cannot load a module twice; %s"
                   version emacs-runtime-mcp-eval-version fallback)
                  nil)))))
      (error
       (emacs-runtime-mcp-module--warn
        "%s cannot be loaded (%s): build it anew on this machine with \
`make install'; %s"
        file (emacs-runtime-mcp-module--reason err) fallback)
       nil))))

(defun emacs-runtime-mcp-module--compile ()
  "Compile the evaluator where it was loaded as source.
It is the code around every form of an agent."
  (mapatoms
   (lambda (symbol)
     (when (and (fboundp symbol)
                (string-prefix-p "emacs-runtime-mcp-eval" (symbol-name symbol))
                (not (macrop symbol)))
       (emacs-runtime-mcp-eval--compile symbol)))))

;;; Commands

;;;###autoload
(defun emacs-runtime-mcp-start ()
  "Listen for agents.
The socket is that of the Emacs server with \".mcp\" appended, so an
agent that is told a server name, a socket or a server file finds it.
Return non-nil if this Emacs listens."
  (interactive)
  (when (emacs-runtime-mcp-module--load)
    (if (nth 1 (emacs-runtime-mcp-core--status))
        (progn (message "emacs-runtime-mcp listens already") t)
      (condition-case err
          (let (;; With its default a read from the pipe waits until
                ;; more may have come: 50 ms a call before Emacs 30.
                (process-adaptive-read-buffering nil))
            (emacs-runtime-mcp-module--compile)
            (setq emacs-runtime-mcp-module--process
                  (make-pipe-process
                   :name "emacs-runtime-mcp" :buffer nil :noquery t
                   :coding 'no-conversion
                   :filter #'emacs-runtime-mcp-module--filter
                   :sentinel #'ignore))
            (emacs-runtime-mcp-core--start
             (encode-coding-string
              (expand-file-name (emacs-runtime-mcp-module--socket)) 'utf-8)
             emacs-runtime-mcp-module--process
             emacs-version server-name
             (emacs-runtime-mcp-eval--valid default-directory))
            (emacs-runtime-mcp-eval--advise t)
            (add-hook 'kill-emacs-hook #'emacs-runtime-mcp-stop)
            t)
        (error
         (emacs-runtime-mcp-module--end)
         (emacs-runtime-mcp-module--warn
          "Cannot listen for agents: %s"
          (emacs-runtime-mcp-module--reason err))
         nil)))))

(defun emacs-runtime-mcp-module--end ()
  "End what `emacs-runtime-mcp-start' began outside the core."
  (remove-hook 'kill-emacs-hook #'emacs-runtime-mcp-stop)
  (emacs-runtime-mcp-eval--advise nil)
  (when (timerp emacs-runtime-mcp-module--timer)
    (cancel-timer emacs-runtime-mcp-module--timer))
  (when emacs-runtime-mcp-module--process
    (delete-process emacs-runtime-mcp-module--process))
  (setq emacs-runtime-mcp-module--process nil
        emacs-runtime-mcp-module--timer nil))

(defun emacs-runtime-mcp-stop ()
  "Stop listening for agents.
Calls that wait are given back unbegun, and may come by emacsclient;
one that runs is still answered.  Return non-nil if this Emacs listened."
  (interactive)
  (remove-hook 'emacs-startup-hook #'emacs-runtime-mcp-start)
  (when (featurep 'emacs-runtime-mcp-core)
    (prog1 (emacs-runtime-mcp-core--stop)
      (emacs-runtime-mcp-module--end))))

(defun emacs-runtime-mcp-restart ()
  "Stop listening and listen again, where the server is now."
  (interactive)
  (emacs-runtime-mcp-stop)
  (emacs-runtime-mcp-start))

(defun emacs-runtime-mcp-cancel ()
  "Stop the running form of an agent and withdraw those that wait.
The agent is told that a person did so.  Return how many that were.
A form that waits ends as soon as this command has."
  (interactive)
  (let* ((status (and (featurep 'emacs-runtime-mcp-core)
                      (emacs-runtime-mcp-core--status)))
         (running (emacs-runtime-mcp-eval--on-stack-p))
         (count (+ (or (nth 3 status) 0) (if running 1 0))))
    (if (not running)
        (emacs-runtime-mcp-module--cancel)
      ;; This runs inside the form's own wait, perhaps within the filter
      ;; of another process, which is not to be cut off with the form.
      (run-at-time 0 nil #'emacs-runtime-mcp-module--cancel))
    (when (called-interactively-p 'interactive)
      (message "Stopped or withdrew %d calls" count))
    count))

(defun emacs-runtime-mcp-module--cancel ()
  "Do what `emacs-runtime-mcp-cancel' promises."
  (let ((ours (and (featurep 'emacs-runtime-mcp-core)
                   (nth 4 (emacs-runtime-mcp-core--status)))))
    (when (featurep 'emacs-runtime-mcp-core)
      (emacs-runtime-mcp-core--cancel))
    (when (and (not ours) (emacs-runtime-mcp-eval--on-stack-p))
      ;; A form of the emacsclient path.
      (funcall emacs-runtime-mcp-eval--stage 'cancel)
      (emacs-runtime-mcp-eval--stop))))

(defun emacs-runtime-mcp-status ()
  "Say whether agents can reach this Emacs, and where.
Return the text."
  (interactive)
  (let* ((status (and (featurep 'emacs-runtime-mcp-core)
                      (emacs-runtime-mcp-core--status)))
         (socket (nth 1 status))
         (wanted (expand-file-name (emacs-runtime-mcp-module--socket)))
         (text
          (cond
           ((not status) "The native core is not loaded")
           ((not socket)
            (if (memq #'emacs-runtime-mcp-start emacs-startup-hook)
                "Waiting for the end of Emacs's start-up to listen"
              "Not listening; M-x emacs-runtime-mcp-start"))
           (t
            (format "Listening on %s: %d connected, %d calls so far, %d waiting%s%s"
                    socket (nth 2 status) (nth 5 status) (nth 3 status)
                    (if emacs-runtime-mcp-eval--running ", one running" "")
                    (if (equal socket wanted) ""
                      (format "; the Emacs server is elsewhere by now, \
agents that select it look at %s: M-x emacs-runtime-mcp-restart moves there"
                              wanted)))))))
    (when (called-interactively-p 'interactive)
      (message "%s" text))
    text))

;;; Being required

(defun emacs-runtime-mcp-module--start-when-ready ()
  "Listen now, or at the end of Emacs's start-up.
Before that nobody knows the server's name: the init file may set it,
and a named daemon sets it after everything else."
  (if (or (null after-init-time)
          (and (daemonp) (not server-process)))
      (add-hook 'emacs-startup-hook #'emacs-runtime-mcp-start)
    (emacs-runtime-mcp-start)))

;; A batch Emacs requires this to compile somebody's init file.
(unless noninteractive
  (emacs-runtime-mcp-module--start-when-ready))

(provide 'emacs-runtime-mcp-module)
;;; emacs-runtime-mcp-module.el ends here
