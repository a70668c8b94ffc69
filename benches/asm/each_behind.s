    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    mov rax,QWORD PTR [rdi]
    mov rdx,QWORD PTR [rdi+0x8]
    mov r8,QWORD PTR [rax+0xa8]
    mov r10,QWORD PTR [rax+0xb0]
    mov r9,QWORD PTR [rax+0xb8]
    cmp r8,r10
    je 1
    mov ecx,DWORD PTR [rdi+0x10]
    mov r11,QWORD PTR [rax+0x40]
    mov rbx,QWORD PTR [rax+0xc0]
    sub rbx,r9
    and ecx,0x3f
    mov r14,QWORD PTR [rsi]
    mov rsi,QWORD PTR [rsi+0x8]
0:
    mov ebp,DWORD PTR [r8+0x3c]
    bswap ebp
    xor ebp,r9d
    test ebp,0xffff00fd
    jne 1
    mov ebp,DWORD PTR [r8+0x20]
    cmp ebp,DWORD PTR [rax+0x30]
    jne 1
    mov ebp,DWORD PTR [r8+0x2c]
    bswap ebp
    mov r13d,ebp
    and r13d,0xffff0000
    je 1
    sub rbx,r13
    jb 1
    movzx r15d,bp
    mov r12,r13
    shr r12,cl
    cmp r12,r15
    jb 1
    add r9,r13
    movzx ebp,WORD PTR [r8+0x1c]
    add r8,r11
    and ebp,0xc06
    xor r13d,r13d
    cmp ebp,0x806
    sete r13b
    add r15,rdx
    add r15,QWORD PTR [r14]
    add r15,r13
    mov QWORD PTR [r14],r15
    inc QWORD PTR [rsi]
    add rdx,r12
    cmp r8,r10
    jne 0
1:
    mov QWORD PTR [rax+0xa8],r8
    mov QWORD PTR [rax+0xb8],r9
    mov QWORD PTR [rdi+0x8],rdx
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
