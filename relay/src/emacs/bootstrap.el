;; What emacsclient is asked to evaluate: it defines the evaluator for the length of one call, lets
;; it work, and puts back what was there before. DEFINITIONS are the evaluator's top-level forms,
;; ARGUMENTS those of `emacs-runtime-mcp-eval-client'; the relay appends both to this lambda.
(lambda (version definitions arguments)
  (if (bound-and-true-p emacs-runtime-mcp-eval--running)
      "busy"
    (let ((current-load-list nil)
          (before nil))
      (unwind-protect
          (progn
            (unless (and (featurep 'emacs-runtime-mcp-eval)
                         (equal version emacs-runtime-mcp-eval-version))
              (dolist (definition definitions)
                (let ((name (cadr definition)))
                  (when (and (symbolp name) (cddr definition))
                    (push (list name (symbol-function name)
                                (boundp name) (and (boundp name) (symbol-value name))
                                (copy-sequence (symbol-plist name)))
                          before))
                  (when (cddr definition)
                    (eval definition t)))))
            (apply 'emacs-runtime-mcp-eval-client arguments))
        (dolist (entry before)
          (let ((name (car entry)))
            (fset name (nth 1 entry))
            (if (nth 2 entry)
                (set name (nth 3 entry))
              (makunbound name))
            (setplist name (nth 4 entry))))))))
